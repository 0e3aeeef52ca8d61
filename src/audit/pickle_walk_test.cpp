#include "audit/pickle_walk.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace nibble::audit {
namespace {

using namespace std::string_literals;

PickleWalk walk(const std::string& bytes) {
  return walk_pickle(std::as_bytes(std::span(bytes)));
}

// {"a": [1, 2.5]} in protocol 2, 4 and 5, and a call in each; written by Python's pickle.
const std::string kDictionary2 = "\x80\2}q\0X\1\0\0\0aq\1]q\2(K\1G@\4\0\0\0\0\0\0es."s;
const std::string kDictionary4 =
    "\x80\4\x95\x18\0\0\0\0\0\0\0}\x94\x8C\1a\x94]\x94(K\1G@\4\0\0\0\0\0\0es."s;
const std::string kCall4 =
    "\x80\4\x95\x1D\0\0\0\0\0\0\0\x8C\5posix\x94\x8C\6system\x94\x93\x94\x8C\2id\x94\x85\x94R\x94."s;

TEST(PickleWalk, KnowsPicklesOfEveryProtocol) {
  for (const std::string& bytes :
       {kDictionary2, kDictionary4, kCall4, "cposix\nsystem\n(S'id'\ntR."s,
        "(S'id'\niposix\nsystem\n."s, "(cposix\nsystem\nS'id'\no."s,
        "\x80\2cposix\nsystem\nX\2\0\0\0id\x85R."s, "\x80\3]."s})
    EXPECT_TRUE(walk(bytes).is_pickle) << bytes;
}

TEST(PickleWalk, NamesWhatIsImported) {
  EXPECT_EQ(walk(kCall4).imports, "'posix system'");
  EXPECT_EQ(walk("cposix\nsystem\n(S'id'\ntR.").imports, "'posix system'");
  EXPECT_EQ(walk("c\x1b[2J\nx\n.").imports, "'\\x1b[2J x'");
  EXPECT_EQ(walk(kDictionary2).imports, "");
}

TEST(PickleWalk, WhatComesAfterTheCallDoesNotMatter) {
  EXPECT_TRUE(walk("cposix\nsystem\n(S'id'\ntR\xFF\xFF").is_pickle);
  EXPECT_TRUE(walk("\x80\2cposix\nsystem\n(S'id'\ntR\xFF\xFF"s).is_pickle);
  // Cut by the window: nothing was wrong so far.
  EXPECT_TRUE(walk("\x80\4\x95\0\0\0\0\0\0\0\0]\x94(K\1K\2K\3e\x8E\0\0\1\0\0\0\0\0"s).is_pickle);
}

TEST(PickleWalk, ProseAndDataAreNone) {
  for (const std::string& text : {""s,
                                  "."s,
                                  "N."s,
                                  "()."s,
                                  "I1\n."s,
                                  "# A model\n"s,
                                  "(c) 2026\nAll rights reserved.\n"s,
                                  "cats and dogs\nare animals\n(all of them)."s,
                                  "c\n\n."s,
                                  "import os\nos.system('id')\n"s,
                                  "{\"a\": 1}"s,
                                  "\x80"s,
                                  "\x80\2"s,
                                  "\x80\2\0\0\0\0\0\0{\"a\":1}"s,
                                  "\x80\6]q\0."s,
                                  "city\nname\n"s,
                                  "cposix\nsystem\n"s,
                                  "R."s,
                                  "tR."s,
                                  std::string(1000, '(')})
    EXPECT_FALSE(walk(text).is_pickle) << text;
}

TEST(PickleWalk, EveryPrefixIsSafe) {
  for (const std::string& bytes : {kDictionary2, kDictionary4, kCall4}) {
    for (std::size_t size = 0; size < bytes.size(); ++size) walk(bytes.substr(0, size));
  }
}

}  // namespace
}  // namespace nibble::audit
