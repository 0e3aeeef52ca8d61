// Typed access to the keys of a JSON object, with errors that name file and key.
#pragma once

#include <simdjson.h>

#include <optional>
#include <string>
#include <string_view>

namespace nibble::model {

// Borrows the parsed document. `path` is the prefix printed before a key ("quantization_config.").
class JsonKeys {
 public:
  JsonKeys(simdjson::dom::object object, std::string file, std::string path = "")
      : object_(object), file_(std::move(file)), path_(std::move(path)) {}

  bool has(std::string_view key) const;
  // Throws CheckpointError when the key is absent, of another type, or outside [low, high].
  std::int64_t integer(std::string_view key, std::int64_t low, std::int64_t high) const;
  double number(std::string_view key, double low, double high) const;
  std::string text(std::string_view key) const;
  bool boolean(std::string_view key) const;
  simdjson::dom::array array(std::string_view key) const;
  std::optional<JsonKeys> object(std::string_view key) const;  // nullopt when absent or null

  [[noreturn]] void refuse(std::string_view key, const std::string& expected,
                           const std::string& found) const;

 private:
  simdjson::dom::element element(std::string_view key, const char* expected) const;

  simdjson::dom::object object_;
  std::string file_;
  std::string path_;
};

}  // namespace nibble::model
