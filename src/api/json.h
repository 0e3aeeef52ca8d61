// A request body as a tree: parsed by simdjson's On-Demand front end, checked whole, every failure with its place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "nibble/status.h"

namespace nibble::api {

struct JsonLimits {
  int depth = 128;               // nested arrays and objects
  std::size_t values = 1200000;  // a prompt of 1M token ids fits
};

// One value. Views point into the JsonDocument that made it.
struct Json {
  enum class Kind : std::uint8_t { kNull, kBool, kNumber, kString, kArray, kObject };

  Kind kind = Kind::kNull;
  std::string_view key;     // of this member in its object; empty in arrays
  std::string_view raw;     // the value as it stands in the body, without surrounding blanks
  std::string_view string;  // kString: decoded, UTF-8, may hold NUL
  std::vector<Json>
      items;  // kArray: elements; kObject: members in the order of the body, `key` set

  bool is(Kind wanted) const { return kind == wanted; }
  bool boolean() const { return raw == "true"; }
  // The last member of that name (as Python reads duplicates), or null.
  const Json* find(std::string_view name) const;
  // kNumber: the value where it is a whole number in range (1, 1.0 and 1e2 are), else nothing.
  std::optional<std::int64_t> integer() const;
  // kNumber: the nearest double; nothing when it would overflow.
  std::optional<double> number() const;
};

// "an array", "null", ...: for messages.
const char* json_kind_name(Json::Kind kind);

// Owns the text and the decoded strings. Movable; views in root() stay valid.
class JsonDocument {
 public:
  // kInvalidArgument with byte, line and column for: bad UTF-8, lone surrogate escapes, syntax, depth, too many values.
  static Result<JsonDocument> parse(std::string_view body, const JsonLimits& limits = {});

  JsonDocument(JsonDocument&&) noexcept;
  JsonDocument& operator=(JsonDocument&&) noexcept;
  ~JsonDocument();

  const Json& root() const;

 private:
  struct State;
  explicit JsonDocument(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// "byte 57 (line 3, column 12)"; the offset counts from 0, line and column (in characters) from 1.
std::string describe_position(std::string_view body, std::size_t offset);

}  // namespace nibble::api
