// Unicode classes as the `tokenizers` library's regular expressions see them
// (tools/unicode/make_tables.py).
#pragma once

#include <cstdint>
#include <span>

namespace nibble::text {

struct CodePointRange {
  char32_t first;
  char32_t last;  // inclusive
};

// Ascending, disjoint.
std::span<const CodePointRange> letters();      // \p{L}
std::span<const CodePointRange> marks();        // \p{M}
std::span<const CodePointRange> numbers();      // \p{N}
std::span<const CodePointRange> punctuation();  // \p{P}
std::span<const CodePointRange> symbols();      // \p{S}
std::span<const CodePointRange> whitespace();   // \s

enum ClassBit : std::uint8_t {
  kLetter = 1,
  kMark = 2,
  kNumber = 4,
  kPunctuation = 8,
  kSymbol = 16,
  kWhitespace = 32,
};

// The class bits of a code point; 0 above U+10FFFF. One table lookup; the table (1.1 MB) is made on
// first use.
std::uint8_t class_bits(char32_t code_point);

}  // namespace nibble::text
