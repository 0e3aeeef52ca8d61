#include "api/json.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

namespace nibble::api {
namespace {

std::string failure(std::string_view body, const JsonLimits& limits = {}) {
  const Result<JsonDocument> document = JsonDocument::parse(body, limits);
  if (document) return "accepted";
  EXPECT_EQ(document.status().code, StatusCode::kInvalidArgument);
  return document.status().message;
}

void expect_failure(std::string_view body, const std::string& place, const std::string& reason) {
  const std::string message = failure(body);
  EXPECT_NE(message.find(place), std::string::npos) << body << "\n  " << message;
  EXPECT_NE(message.find(reason), std::string::npos) << body << "\n  " << message;
}

TEST(Json, KeepsOrderSpellingAndSpans) {
  const auto document = JsonDocument::parse(
      R"( {"b": [1.0, 1e400, -0, 12345678901234567890123], "a": {"x":  null , "y":true}, "b2": "\u00e4\n", "a": {} } )");
  ASSERT_TRUE(document.ok()) << document.status().message;
  const Json& root = document->root();
  ASSERT_EQ(root.items.size(), 4u);
  EXPECT_EQ(root.items[0].key, "b");
  EXPECT_EQ(root.items[0].raw, "[1.0, 1e400, -0, 12345678901234567890123]");
  EXPECT_EQ(root.items[1].raw, R"({"x":  null , "y":true})");
  EXPECT_EQ(root.items[2].string, "ä\n");
  EXPECT_EQ(root.items[2].raw, R"("\u00e4\n")");
  EXPECT_EQ(root.find("a")->raw, "{}");  // the last of two, as Python reads it
  const std::vector<Json>& numbers = root.items[0].items;
  EXPECT_EQ(numbers[0].raw, "1.0");
  EXPECT_EQ(numbers[0].integer(), 1);
  EXPECT_EQ(numbers[1].number(), std::nullopt);
  EXPECT_EQ(numbers[1].integer(), std::nullopt);
  EXPECT_EQ(numbers[2].integer(), 0);
  EXPECT_EQ(numbers[3].integer(), std::nullopt);
  EXPECT_EQ(root.items[1].items[0].kind, Json::Kind::kNull);
  EXPECT_TRUE(root.items[1].items[1].boolean());
}

TEST(Json, WholeNumbers) {
  const auto document =
      JsonDocument::parse("[7,7.0,7.5,1e2,-3,9223372036854775807,9223372036854775808,1e-400,1E+2]");
  ASSERT_TRUE(document.ok());
  const std::vector<Json>& items = document->root().items;
  EXPECT_EQ(items[0].integer(), 7);
  EXPECT_EQ(items[1].integer(), 7);
  EXPECT_EQ(items[2].integer(), std::nullopt);
  EXPECT_EQ(items[3].integer(), 100);
  EXPECT_EQ(items[4].integer(), -3);
  EXPECT_EQ(items[5].integer(), 9223372036854775807);
  EXPECT_EQ(items[6].integer(), std::nullopt);
  EXPECT_EQ(items[7].number(), 0.0);
  EXPECT_EQ(items[8].integer(), 100);
}

TEST(Json, EmbeddedNulAndSurrogatePairs) {
  const auto document =
      JsonDocument::parse(R"({"k\u0000": "a\u0000b", "pair": "\ud83d\ude00", "slash": "\\ud83d"})");
  ASSERT_TRUE(document.ok()) << document.status().message;
  EXPECT_EQ(document->root().items[0].key, std::string_view("k\0", 2));
  EXPECT_EQ(document->root().items[0].string, std::string_view("a\0b", 3));
  EXPECT_EQ(document->root().items[1].string, "😀");
  EXPECT_EQ(document->root().items[2].string, "\\ud83d");
}

TEST(Json, LoneSurrogatesAreNamedWithTheirPlace) {
  expect_failure(R"({"a": "\ud83d"})", "byte 7 (line 1, column 8)",
                 "lone surrogate escape \\ud83d");
  expect_failure("{\n \"ä\": \"x\\ud83d\\u0041\"}", "byte 11 (line 2, column 9)", "\\ud83d");
  expect_failure(R"({"a": "\ude00"})", "byte 7", "\\ude00");
  expect_failure(R"({"a": "\ud83d\ud83d\ude00"})", "byte 7", "\\ud83d");
  expect_failure(R"({"\uDFFF": 1})", "byte 2", "\\uDFFF");
}

TEST(Json, InvalidUtf8IsNamedWithItsPlace) {
  expect_failure("{\"a\": \"\xff\"}", "byte 7", "0xff is not UTF-8");
  expect_failure("{\"a\": \"\xed\xa0\x80\"}", "byte 7", "is not UTF-8");  // a surrogate, encoded
  expect_failure("{\"a\": \"\xc0\xaf\"}", "byte 7", "is not UTF-8");      // an overlong slash
  expect_failure("{\"a\": \"\xe6\xb7\"}", "byte 7", "is not UTF-8");      // a cut character
}

TEST(Json, SyntaxErrorsHaveAPlace) {
  const std::pair<const char*, const char*> kCases[] = {
      {"", "byte 0"},
      {"   ", "byte 0"},
      {"nul", "byte 0"},
      {"3", "byte 0"},
      {"\"text\"", "byte 0"},
      {"{", "byte"},
      {"[", "byte"},
      {"{]", "byte"},
      {"[1,]", "byte 3"},
      {"[1 2]", "byte 3"},
      {"[,1]", "byte 1"},
      {"[01]", "byte 1"},
      {"[1.]", "byte 1"},
      {"[.5]", "byte 1"},
      {"[+1]", "byte 1"},
      {"[1e]", "byte 1"},
      {"[0x10]", "byte 1"},
      {"[NaN]", "byte 1"},
      {"[Infinity]", "byte 1"},
      {"[truex]", "byte 1"},
      {"[tru]", "byte 1"},
      {"[nullx]", "byte 1"},
      {"[\"a\" \"b\"]", "byte 5"},
      {"[\"a\"b]", "byte 4"},
      {"{\"a\" 1}", "byte"},
      {"{\"a\":}", "byte"},
      {"{\"a\":1,}", "byte"},
      {"{a:1}", "byte"},
      {"{\"a\":1}}", "byte 7"},
      {"{\"a\":1} x", "byte 8"},
      {"[1][2]", "byte 3"},
      {"{\"a\":\"x}", "byte 5"},
      {"{\"a\":\"x\ny\"}", "byte 7"},
      {"{\"a\":\"\\x\"}", "byte 5"},
      {"{\"a\":\"\\u12g4\"}", "byte 5"},
      {"{'a':1}", "byte"},
      {"{\"a\":1 /* c */}", "byte"},
      {"[[1]", "byte"},
      {"{\"a\":[}", "byte"},
  };
  for (const auto& [body, place] : kCases) {
    const std::string message = failure(body);
    EXPECT_TRUE(message.starts_with("invalid JSON at ")) << body << "\n  " << message;
    EXPECT_NE(message.find(place), std::string::npos) << body << "\n  " << message;
  }
  EXPECT_NE(failure(std::string_view("[1]\0", 4)), "accepted");
}

TEST(Json, DeepNestingIsRefusedFast) {
  for (const char* open : {"[", "{\"a\":"}) {
    std::string body;
    for (int i = 0; i < 100000; ++i) body += open;
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_NE(failure(body).find("nested deeper than 128"), std::string::npos);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
  }
  std::string fits(128, '[');
  fits += std::string(128, ']');
  EXPECT_EQ(failure(fits), "accepted");
  EXPECT_NE(failure("[" + fits + "]"), "accepted");
}

TEST(Json, TooManyValuesAreRefused) {
  std::string body = "[0";
  for (int i = 0; i < 100; ++i) body += ",0";
  body += "]";
  EXPECT_EQ(failure(body, {.depth = 4, .values = 102}), "accepted");
  EXPECT_NE(failure(body, {.depth = 4, .values = 101}).find("more than 101 values"),
            std::string::npos);
}

TEST(Json, ReadsWhatOtherParsersRead) {
  const char* kBodies[] = {"[]",
                           "{}",
                           " [ ] ",
                           "[[],{},[{}]]",
                           "{\"\":\"\"}",
                           "[\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"]",
                           "[-0.5e-3,0,1E5]",
                           "{\"a\":{\"b\":[1,{\"c\":[]}]}}",
                           "[true,false,null]"};
  for (const char* body : kBodies) EXPECT_EQ(failure(body), "accepted") << body;
}

}  // namespace
}  // namespace nibble::api
