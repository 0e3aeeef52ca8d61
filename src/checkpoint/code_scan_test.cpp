#include "checkpoint/code_scan.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "quant/bf16.h"
#include "quant/e4m3.h"
#include "quant/f16.h"

namespace nibble::checkpoint {
namespace {

using Scan = std::optional<std::int64_t> (*)(std::span<const std::byte>);

template <typename Element>
std::optional<std::int64_t> scan(Scan find, const std::vector<Element>& elements) {
  return find(std::as_bytes(std::span(elements)));
}

// Every code, at every place of a buffer that has whole strides and a tail, among the neighbours
// most likely to carry into it.
template <typename Element, typename IsBad>
void check_scan(Scan find, const std::vector<Element>& codes, Element neighbour, IsBad is_bad) {
  const std::size_t size = 64 / sizeof(Element) + 7;
  EXPECT_FALSE(scan<Element>(find, {}));
  for (const Element code : codes) {
    for (std::size_t place = 0; place < size; place += sizeof(Element) == 1 ? 1 : 5) {
      std::vector<Element> elements(size, neighbour);
      ASSERT_FALSE(scan(find, elements));
      elements[place] = code;
      const auto found = scan(find, elements);
      if (is_bad(code)) {
        ASSERT_TRUE(found) << +code;
        ASSERT_EQ(*found, static_cast<std::int64_t>(place)) << +code;
      } else {
        ASSERT_FALSE(found) << +code << " at " << place;
      }
    }
  }
}

template <typename Element>
std::vector<Element> all_codes() {
  std::vector<Element> codes(std::size_t{1} << (8 * sizeof(Element)));
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<Element>(i);
  return codes;
}

TEST(CodeScan, E4M3) {
  check_scan<std::uint8_t>(find_e4m3_nan, all_codes<std::uint8_t>(), 0xFE, quant::e4m3_is_nan);
}

TEST(CodeScan, BF16) {
  check_scan<std::uint16_t>(
      find_nonfinite_bf16, all_codes<std::uint16_t>(), 0xFF7F,
      [](std::uint16_t code) { return !std::isfinite(quant::bf16_decode(code)); });
}

TEST(CodeScan, F16) {
  check_scan<std::uint16_t>(
      find_nonfinite_f16, all_codes<std::uint16_t>(), 0xFBFF,
      [](std::uint16_t code) { return !std::isfinite(quant::f16_decode(code)); });
}

TEST(CodeScan, F32) {
  std::vector<std::uint32_t> codes;
  for (std::uint32_t high = 0; high < 512; ++high) {  // every sign and exponent
    for (const std::uint32_t mantissa : {0u, 1u, 0x400000u, 0x7FFFFFu})
      codes.push_back(high << 23 | mantissa);
  }
  check_scan<std::uint32_t>(find_nonfinite_f32, codes, 0xFF7FFFFF, [](std::uint32_t code) {
    return !std::isfinite(std::bit_cast<float>(code));
  });
}

TEST(CodeScan, FirstOfSeveral) {
  std::vector<std::uint8_t> codes(1000, 0x38);
  codes[700] = codes[130] = codes[131] = 0x7F;
  EXPECT_EQ(scan(find_e4m3_nan, codes), 130);
}

TEST(CodeScan, ByteAbove) {
  const std::vector<std::uint8_t> codes = {0, 252, 3, 253, 255};
  EXPECT_EQ(find_byte_above(std::as_bytes(std::span(codes)), 252), 3);
  EXPECT_EQ(find_byte_above(std::as_bytes(std::span(codes)), 254), 4);
  EXPECT_FALSE(find_byte_above(std::as_bytes(std::span(codes)), 255));
}

}  // namespace
}  // namespace nibble::checkpoint
