// JSON as Python's json module reads and writes it, except that numbers keep the spelling they came
// with. Prompts contain tool schemas and arguments as text, so every byte of it counts.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "nibble/status.h"

namespace nibble::text {

struct JsonMember;

// One value. Memory is about 100 bytes a value.
struct Json {
  enum class Kind { kNull, kBool, kNumber, kString, kArray, kObject };
  Kind kind = Kind::kNull;
  std::string text;         // kString: decoded UTF-8; kNumber: as spelled; kBool: "true" or "false"
  std::vector<Json> items;  // kArray
  // kObject: order of first appearance; a key given twice has its last value.
  std::vector<JsonMember> members;

  // A member's value; null when absent or not an object.
  const Json* find(std::string_view key) const;
};

struct JsonMember {
  std::string key;
  Json value;
};

inline constexpr int kMaxJsonDepth = 256;  // arrays and objects inside each other

// Strict JSON (no NaN, no comments), whitespace around it allowed. kInvalidArgument: the message
// gives the byte offset. Invalid UTF-8 and lone surrogate escapes are errors.
Result<Json> parse_json(std::string_view text);

// json.dumps(value, ensure_ascii=False): ", " and ": " between, non-ASCII kept.
std::string python_json(const Json& value);

// A string in quotes, escaped as json.dumps(ensure_ascii=False) does.
std::string python_json_string(std::string_view utf8);

}  // namespace nibble::text
