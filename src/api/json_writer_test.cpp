#include "api/json_writer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "api/json.h"

namespace nibble::api {
namespace {

std::string as_json(std::string_view text) {
  std::string out;
  append_json_string(out, text);
  return out;
}

TEST(JsonWriter, Nesting) {
  std::string out;
  JsonWriter json(out);
  json.begin_object().member("a", 1).member("b", "x").key("c").begin_array();
  json.number(1)
      .begin_object()
      .end_object()
      .begin_array()
      .end_array()
      .null()
      .boolean(false)
      .end_array();
  json.key("d").raw("{\"r\":1}").member("e", true).end_object();
  EXPECT_EQ(out, R"({"a":1,"b":"x","c":[1,{},[],null,false],"d":{"r":1},"e":true})");
}

TEST(JsonWriter, Strings) {
  EXPECT_EQ(as_json("plain ä 深 👩‍👧"), "\"plain ä 深 👩‍👧\"");
  EXPECT_EQ(as_json("\"\\\n\r\t\b\f/"), R"("\"\\\n\r\t\b\f/")");
  EXPECT_EQ(as_json(std::string_view("\0\x01\x1f\x7f", 4)), "\"\\u0000\\u0001\\u001f\x7f\"");
  EXPECT_EQ(as_json("a\xff\xe6\xb7z\xed\xa0\x80"), "\"a\uFFFD\uFFFD\uFFFDz\uFFFD\uFFFD\uFFFD\"");
}

// Whatever the bytes, what is written can be read, and valid text comes back as it was.
TEST(JsonWriter, EveryPairOfBytesReadsBack) {
  for (int first = 0; first < 256; ++first) {
    for (int second = 0; second < 256; ++second) {
      const std::string text = {static_cast<char>(first), static_cast<char>(second)};
      const auto document = JsonDocument::parse("[" + as_json(text) + "]");
      ASSERT_TRUE(document.ok()) << first << " " << second << ": " << document.status().message;
      if (first < 0x80 && second < 0x80) {
        EXPECT_EQ(document->root().items[0].string, text);
      }
    }
  }
}

TEST(JsonWriter, Numbers) {
  std::string out;
  JsonWriter json(out);
  json.begin_array();
  json.number(std::numeric_limits<std::int64_t>::min())
      .number(std::numeric_limits<std::uint64_t>::max());
  json.number(0.1f).number(-1e-30f).number(1e300).number(-0.0);
  json.number(std::nanf("")).number(std::numeric_limits<double>::infinity());
  json.end_array();
  EXPECT_EQ(out, "[-9223372036854775808,18446744073709551615,0.1,-1e-30,1e+300,-0,null,null]");
}

}  // namespace
}  // namespace nibble::api
