#include <algorithm>
#include <vector>

#include "text/unicode_tables.h"

namespace nibble::text {

namespace {

constexpr std::size_t kCodePoints = 0x110000;

std::vector<std::uint8_t> make_table() {
  std::vector<std::uint8_t> table(kCodePoints, 0);
  const auto mark = [&](std::span<const CodePointRange> ranges, ClassBit bit) {
    for (const CodePointRange& range : ranges) {
      for (char32_t c = range.first; c <= range.last; ++c) table[c] |= bit;
    }
  };
  mark(letters(), kLetter);
  mark(marks(), kMark);
  mark(numbers(), kNumber);
  mark(punctuation(), kPunctuation);
  mark(symbols(), kSymbol);
  mark(whitespace(), kWhitespace);
  return table;
}

}  // namespace

std::uint8_t class_bits(char32_t code_point) {
  static const std::vector<std::uint8_t> kTable = make_table();
  return code_point < kCodePoints ? kTable[code_point] : std::uint8_t{0};
}

}  // namespace nibble::text
