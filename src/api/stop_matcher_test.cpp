#include "api/stop_matcher.h"

#include <gtest/gtest.h>

#include <random>

namespace nibble::api {
namespace {

struct Case {
  std::vector<std::string> stops;
  std::string text;
  std::string shown;
  bool matched;
};

std::string run(const Case& test, const std::vector<std::size_t>& cuts, bool& matched) {
  StopMatcher matcher(test.stops);
  std::string out;
  std::size_t begin = 0;
  for (const std::size_t cut : cuts) {
    out += matcher.push(test.text.substr(begin, cut - begin));
    begin = cut;
  }
  out += matcher.push(test.text.substr(begin));
  matched = matcher.matched();
  if (!matched) out += matcher.flush();
  EXPECT_EQ(matcher.push("after"), matched ? "" : "after");
  return out;
}

const Case kCases[] = {
    {{}, "anything", "anything", false},
    {{"END"}, "some text END more", "some text ", true},
    {{"END"}, "some text EN", "some text EN", false},
    {{"END"}, "EEEND", "EE", true},
    {{"END"}, "END", "", true},
    {{"\n\n"}, "a\nb\n\nc", "a\nb", true},
    {{"aab"}, "aaaab", "aa", true},
    {{"abab"}, "abaabab", "aba", true},
    {{"b", "abc"}, "xabc", "xa", true},  // "b" ends first
    {{"bc", "abc"}, "xabc", "x", true},  // both end together: the longer one
    {{"c", "abcd"}, "xabcd", "xab", true},
    {{"深度"}, "naïve 深海 深度 x", "naïve 深海 ", true},
    {{"👩‍👧"},
     "👩‍👩‍👦 👩‍👧",
     "👩‍👩‍👦 ",
     true},  // made of several characters each
};

TEST(StopMatcher, EveryCutGivesTheSame) {
  for (const Case& test : kCases) {
    bool matched = false;
    EXPECT_EQ(run(test, {}, matched), test.shown) << test.text;
    EXPECT_EQ(matched, test.matched) << test.text;
    for (std::size_t first = 0; first <= test.text.size(); ++first) {
      for (std::size_t second = first; second <= test.text.size(); ++second) {
        EXPECT_EQ(run(test, {first, second}, matched), test.shown)
            << test.text << " " << first << " " << second;
        EXPECT_EQ(matched, test.matched);
      }
    }
  }
}

// Against a search over the whole text, on words of two letters where overlaps are the rule.
TEST(StopMatcher, AgreesWithAWholeTextSearch) {
  std::mt19937 random(5);
  const auto word = [&](int most) {
    std::string out(1 + random() % static_cast<unsigned>(most), 'a');
    for (char& c : out) c = static_cast<char>('a' + random() % 2);
    return out;
  };
  for (int round = 0; round < 2000; ++round) {
    Case test;
    for (unsigned i = 0; i < 1 + random() % 3; ++i) test.stops.push_back(word(4) + word(2));
    test.text = word(24);
    test.shown = test.text;
    test.matched = false;
    for (std::size_t end = 1; end <= test.text.size() && !test.matched; ++end) {
      std::size_t longest = 0;
      for (const std::string& stop : test.stops)
        if (test.text.substr(0, end).ends_with(stop)) longest = std::max(longest, stop.size());
      if (longest == 0) continue;
      test.matched = true;
      test.shown = test.text.substr(0, end - longest);
    }
    std::vector<std::size_t> cuts;
    for (std::size_t at = 0; at < test.text.size(); ++at)
      if (random() % 2) cuts.push_back(at);
    bool matched = false;
    EXPECT_EQ(run(test, cuts, matched), test.shown) << test.text;
    EXPECT_EQ(matched, test.matched);
  }
}

TEST(StopMatcher, ShowsAtOnceWhatCannotBecomeAMatch) {
  StopMatcher matcher({"stop", "\n\n"});
  EXPECT_EQ(matcher.push("a s"), "a ");
  EXPECT_EQ(matcher.push("t"), "");
  EXPECT_EQ(matcher.push("x\n"), "stx");
  EXPECT_EQ(matcher.flush(), "\n");
  EXPECT_EQ(matcher.push("\n"), "");
  EXPECT_EQ(matcher.push("\n"), "");
  EXPECT_TRUE(matcher.matched());
}

}  // namespace
}  // namespace nibble::api
