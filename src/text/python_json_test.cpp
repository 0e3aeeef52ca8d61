#include "text/python_json.h"

#include <gtest/gtest.h>

namespace nibble::text {
namespace {

std::string dumped(std::string_view text) {
  const auto json = parse_json(text);
  return json ? python_json(*json) : json.status().message;
}

TEST(PythonJson, WritesAsPythonDoes) {
  const struct {
    const char* in;
    const char* out;
  } kCases[] = {
      {R"({"b":1,"a":[1,2,{}],"c":{"d":[]}})", R"({"b": 1, "a": [1, 2, {}], "c": {"d": []}})"},
      {" [ ] ", "[]"},
      {"[1.50, 1e5, 1E+400, -0, 123456789012345678901234567890]",
       "[1.50, 1e5, 1E+400, -0, 123456789012345678901234567890]"},
      {R"("caf\u00e9 \ud83d\ude00 \/")", R"("café 😀 /")"},
      {R"("\u0000\u001f\u007f\b\f\n\r\t\"\\")", "\"\\u0000\\u001f\x7F\\b\\f\\n\\r\\t\\\"\\\\\""},
      {R"({"a":1,"b":2,"a":3})", R"({"a": 3, "b": 2})"},
      {R"([true,false,null,""])", R"([true, false, null, ""])"},
      {"\t\n\r 7", "7"},
  };
  for (const auto& c : kCases) EXPECT_EQ(dumped(c.in), c.out);
}

TEST(PythonJson, WhatItWritesReadsTheSame) {
  const std::string text = R"({"k\"ey": ["é", 1e400, {"x": null, "深": "\\n"}], "": -1.5e-7})";
  EXPECT_EQ(dumped(text), text);
}

TEST(PythonJson, RefusalsNameTheByte) {
  const struct {
    std::string in;
    const char* out;
  } kCases[] = {
      {"", "byte 0: expected a value"},
      {"{\"path\":", "byte 8: expected a value"},
      {"[1,]", "byte 3: expected a value"},
      {"[1 2]", "byte 3: expected ',' or ']'"},
      {"{\"a\" 1}", "byte 5: expected ':'"},
      {"{a: 1}", "byte 1: expected a key in quotes"},
      {"{\"a\": 1,}", "byte 8: expected a key in quotes"},
      {"01", "byte 1: text after the value"},
      {"-", "byte 1: expected a value"},
      {"1.", "byte 2: expected a digit"},
      {"1e+", "byte 3: expected a digit"},
      {"NaN", "byte 0: expected a value"},
      {"truth", "byte 0: expected a value"},
      {"\"a\nb\"", "byte 2: control character in a string"},
      {"\"abc", "byte 4: unterminated string"},
      {"\"\\", "byte 2: unknown escape"},
      {"\"\\x41\"", "byte 2: unknown escape"},
      {"\"\\u12g4\"", "expected four hex digits"},
      {"\"\\ud83d\"", "lone surrogate escape"},
      {"\"\\ud83d\\u0041\"", "lone surrogate escape"},
      {"\"\\ude00\"", "lone surrogate escape"},
      {"\"\xFF\"", "byte 1: invalid UTF-8"},
      {"\"\xED\xA0\x80\"", "byte 1: invalid UTF-8"},
      {"{} {}", "byte 3: text after the value"},
      {std::string(100'000, '['), "byte 256: nested too deep"},
  };
  for (const auto& c : kCases) {
    EXPECT_NE(dumped(c.in).find(c.out), std::string::npos)
        << c.in.substr(0, 40) << ": " << dumped(c.in).substr(0, 100);
  }
  std::string deepest = std::string(kMaxJsonDepth, '[') + std::string(kMaxJsonDepth, ']');
  EXPECT_EQ(dumped(deepest), deepest);
}

TEST(PythonJson, Find) {
  const auto json = parse_json(R"({"a": {"b": 7}})");
  ASSERT_TRUE(json.ok());
  EXPECT_EQ(json->find("a")->find("b")->text, "7");
  EXPECT_EQ(json->find("b"), nullptr);
  EXPECT_EQ(json->find("a")->find("b")->find("c"), nullptr);
}

}  // namespace
}  // namespace nibble::text
