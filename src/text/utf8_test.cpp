#include "text/utf8.h"

#include <gtest/gtest.h>

#include <random>

namespace nibble::text {
namespace {

TEST(Utf8, EveryScalarValueRoundTrips) {
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string bytes;
    append_code_point(bytes, c);
    const CodePoint decoded = decode_code_point(bytes);
    ASSERT_TRUE(decoded.valid) << std::hex << static_cast<unsigned>(c);
    ASSERT_EQ(decoded.value, c);
    ASSERT_EQ(static_cast<std::size_t>(decoded.bytes), bytes.size());
    ASSERT_EQ(first_invalid_utf8(bytes), std::nullopt);
  }
}

TEST(Utf8, FirstErrorIsPlaced) {
  const struct {
    std::string text;
    std::size_t at;
  } kCases[] = {
      {"\x80", 0},                 // continuation without lead
      {"ab\xC0\xAF", 2},           // overlong '/'
      {"\xE0\x80\x80", 0},         // overlong in three bytes
      {"x\xED\xA0\x80", 1},        // surrogate U+D800
      {"\xF4\x90\x80\x80", 0},     // above U+10FFFF
      {"\xF5\x80\x80\x80", 0},     // no such lead
      {"ab\xE6\xB7", 2},           // cut by the end
      {"\xE6\xB7\xB1\xE5\xBA", 3}  // second character cut
  };
  for (const auto& c : kCases) EXPECT_EQ(first_invalid_utf8(c.text), c.at) << c.text;
  EXPECT_EQ(first_invalid_utf8(std::string("nul\0byte is fine", 16)), std::nullopt);
  EXPECT_EQ(first_invalid_utf8(""), std::nullopt);
}

// One replacement for each maximal invalid part: the same counts as Python's bytes.decode("utf-8",
// "replace").
TEST(Utf8, LossyReplacesMaximalParts) {
  const std::string r = "\xEF\xBF\xBD";
  EXPECT_EQ(lossy_utf8("a\x80\x80z"), "a" + r + r + "z");
  EXPECT_EQ(lossy_utf8("\xF0\x9F\x91z"), r + "z");
  EXPECT_EQ(lossy_utf8("\xED\xA0\x80"), r + r + r);
  EXPECT_EQ(lossy_utf8("\xE6\xB7"), r);
  EXPECT_EQ(lossy_utf8("\xC3\xC3\xA9"), r + "\xC3\xA9");
  EXPECT_EQ(lossy_utf8("\xF8\x88\x80\x80\x80"), r + r + r + r + r);
}

TEST(Utf8, AssemblerGivesTheSameForEveryCutAndNeverHalfACharacter) {
  std::mt19937 random(7);
  const std::string sample = "naïve 深度 👩‍👩‍👧 \xE6\xB7 x \xF0\x9F end\xF0\x9F\x91";
  const std::string whole = lossy_utf8(sample);
  for (int round = 0; round < 2000; ++round) {
    Utf8Assembler assembler;
    std::string joined;
    std::size_t at = 0;
    while (at < sample.size()) {
      const std::size_t take = 1 + random() % 5;
      const std::string piece = assembler.push(std::string_view(sample).substr(at, take));
      ASSERT_EQ(first_invalid_utf8(piece), std::nullopt);
      joined += piece;
      at += take;
    }
    joined += assembler.finish();
    ASSERT_EQ(joined, whole);
    ASSERT_EQ(assembler.finish(), "");
  }
}

}  // namespace
}  // namespace nibble::text
