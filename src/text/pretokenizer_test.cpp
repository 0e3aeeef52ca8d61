#include "text/pretokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/unicode_tables.h"

namespace nibble::text {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> pieces(std::string_view text) {
  std::vector<std::size_t> ends;
  split_pieces(text, ends);
  std::vector<std::string> out;
  std::size_t begin = 0;
  for (const std::size_t end : ends) {
    out.emplace_back(text.substr(begin, end - begin));
    begin = end;
  }
  EXPECT_EQ(begin, text.size());
  return out;
}

// Each line is one rule of the patterns; that the whole equals the library is
// tests/text/tokenizer_oracle_test.py's part.
TEST(Pretokenizer, Rules) {
  EXPECT_THAT(pieces(""), ElementsAre());
  EXPECT_THAT(pieces("Hello world"), ElementsAre("Hello", " world"));
  EXPECT_THAT(pieces("12345678"), ElementsAre("123", "456", "78"));
  EXPECT_THAT(pieces("a1b"), ElementsAre("a", "1", "b"));
  EXPECT_THAT(pieces("深度1二"), ElementsAre("深度", "1", "二"));
  EXPECT_THAT(pieces("あ・い゛"), ElementsAre("あ", "・", "い", "゛"));
  EXPECT_THAT(pieces("x深度y"), ElementsAre("x", "深度", "y"));
  EXPECT_THAT(pieces("#tag.x!!!\n\nz"), ElementsAre("#tag", ".x", "!!!\n\n", "z"));
  EXPECT_THAT(pieces(" !?"), ElementsAre(" !?"));
  EXPECT_THAT(pieces("\t!"), ElementsAre("\t", "!"));
  EXPECT_THAT(pieces("   a"), ElementsAre("  ", " a"));
  EXPECT_THAT(pieces("a   "), ElementsAre("a", "   "));
  EXPECT_THAT(pieces("a \n \n b"), ElementsAre("a", " \n \n", " b"));
  EXPECT_THAT(pieces("\r\n\r\na"), ElementsAre("\r\n\r\n", "a"));
  EXPECT_THAT(pieces("\na\u9FA6一"), ElementsAre("\n", "a\u9FA6", "一"));
  EXPECT_THAT(pieces("\u00A0a"), ElementsAre("\u00A0a"));
  EXPECT_THAT(pieces("e\u0301\u0301"), ElementsAre("e\u0301\u0301"));
  EXPECT_THAT(pieces("\u200D\u200Da"), ElementsAre("\u200D", "\u200Da"));
  EXPECT_THAT(pieces("\x01\x02!"), ElementsAre("\x01\x02", "!"));
}

TEST(Pretokenizer, BytesThatAreNotUtf8StandAlone) {
  EXPECT_THAT(pieces("a\xFF\xFE!"), ElementsAre("a", "\xFF\xFE", "!"));
  EXPECT_THAT(pieces("\xE6\xB7"), ElementsAre("\xE6\xB7"));
  EXPECT_THAT(pieces("\xE6"
                     "a"),
              ElementsAre("\xE6"
                          "a"));
}

TEST(Pretokenizer, PatternsAreComparedAsText) {
  std::string raw(kSplitPatterns[2]);
  for (const auto& [escape, character] : {std::pair{"\\r", "\r"}, std::pair{"\\n", "\n"}}) {
    for (std::size_t at = raw.find(escape); at != std::string::npos; at = raw.find(escape))
      raw.replace(at, 2, character);
  }
  EXPECT_NE(raw, kSplitPatterns[2]);
  EXPECT_TRUE(is_split_pattern(raw, 2));
  EXPECT_TRUE(is_split_pattern(kSplitPatterns[2], 2));
  EXPECT_FALSE(is_split_pattern(kSplitPatterns[2], 1));
  EXPECT_FALSE(is_split_pattern(raw + "|x", 2));
  EXPECT_FALSE(is_split_pattern("", 3));
}

TEST(UnicodeTables, RangesAreOrderedAndDisjointAndMatchTheBits) {
  const std::pair<std::span<const CodePointRange>, ClassBit> kTables[] = {
      {letters(), kLetter},          {marks(), kMark},     {numbers(), kNumber},
      {punctuation(), kPunctuation}, {symbols(), kSymbol}, {whitespace(), kWhitespace}};
  for (const auto& [ranges, bit] : kTables) {
    char32_t next = 0;
    for (const CodePointRange& range : ranges) {
      ASSERT_LE(next, range.first);
      ASSERT_LE(range.first, range.last);
      ASSERT_LE(range.last, char32_t{0x10FFFF});
      if (range.first > 0 && next < range.first) {
        ASSERT_EQ(class_bits(range.first - 1) & bit, 0);
      }
      ASSERT_NE(class_bits(range.first) & bit, 0);
      ASSERT_NE(class_bits(range.last) & bit, 0);
      next = range.last + 1;
    }
  }
  EXPECT_EQ(class_bits(0x110000), 0);
  EXPECT_EQ(class_bits(U'a'), kLetter);
  EXPECT_EQ(class_bits(U' '), kWhitespace);
  EXPECT_EQ(class_bits(0xD800), 0);
}

}  // namespace
}  // namespace nibble::text
