// JSON text, appended to a string the caller owns. No tree, no allocation besides that string.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace nibble::api {

// Appends `text` as a JSON string with its quotes. Bytes that are not UTF-8 become U+FFFD, so that what is written can
// always be read again.
void append_json_string(std::string& out, std::string_view text);

// One value after another; commas are its own affair, nesting is the caller's. Methods return *this to be chained.
class JsonWriter {
 public:
  explicit JsonWriter(std::string& out) : out_(out) {}

  JsonWriter& begin_object() { return open('{'); }
  JsonWriter& end_object() { return close('}'); }
  JsonWriter& begin_array() { return open('['); }
  JsonWriter& end_array() { return close(']'); }
  JsonWriter& key(std::string_view name);

  JsonWriter& string(std::string_view text);
  JsonWriter& number(std::int64_t value);
  JsonWriter& number(std::uint64_t value);
  JsonWriter& number(int value) { return number(static_cast<std::int64_t>(value)); }
  JsonWriter& number(float value);  // the shortest text that reads back equal; null when not finite
  JsonWriter& number(double value);
  JsonWriter& boolean(bool value);
  JsonWriter& null();
  JsonWriter& raw(std::string_view json);  // text that is JSON already

  // key and value at once, for the many short members.
  JsonWriter& member(std::string_view name, std::string_view text) {
    return key(name).string(text);
  }
  JsonWriter& member(std::string_view name, const char* text) { return key(name).string(text); }
  JsonWriter& member(std::string_view name, std::int64_t value) { return key(name).number(value); }
  JsonWriter& member(std::string_view name, int value) { return key(name).number(value); }
  JsonWriter& member(std::string_view name, bool value) { return key(name).boolean(value); }

 private:
  JsonWriter& open(char bracket);
  JsonWriter& close(char bracket);
  void separate();

  std::string& out_;
  bool needs_comma_ = false;
};

}  // namespace nibble::api
