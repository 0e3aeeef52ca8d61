#include "model/json_keys.h"

#include <fmt/format.h>

#include "nibble/status.h"

namespace nibble::model {

using dom_element = simdjson::dom::element;

namespace {

std::string shown(dom_element value) {
  std::string text = simdjson::minify(value);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

}  // namespace

void JsonKeys::refuse(std::string_view key, const std::string& expected,
                      const std::string& found) const {
  throw CheckpointError(
      fmt::format("{}: key '{}{}': expected {}, found {}", file_, path_, key, expected, found));
}

bool JsonKeys::has(std::string_view key) const {
  dom_element value;
  return object_.at_key(key).get(value) == simdjson::SUCCESS && !value.is_null();
}

simdjson::dom::element JsonKeys::element(std::string_view key, const char* expected) const {
  simdjson::dom::element value;
  if (object_.at_key(key).get(value) != simdjson::SUCCESS) refuse(key, expected, "no such key");
  return value;
}

std::int64_t JsonKeys::integer(std::string_view key, std::int64_t low, std::int64_t high) const {
  const std::string expected = fmt::format("an integer in {}..{}", low, high);
  const auto value = element(key, expected.c_str());
  std::int64_t result = 0;
  if (value.get(result) != simdjson::SUCCESS || result < low || result > high)
    refuse(key, expected, shown(value));
  return result;
}

double JsonKeys::number(std::string_view key, double low, double high) const {
  const std::string expected = fmt::format("a number in {}..{}", low, high);
  const auto value = element(key, expected.c_str());
  double result = 0;
  // Not (x < low || x > high): NaN must be refused as well.
  if (value.get(result) != simdjson::SUCCESS || !(result >= low && result <= high))
    refuse(key, expected, shown(value));
  return result;
}

std::string JsonKeys::text(std::string_view key) const {
  const auto value = element(key, "a string");
  std::string_view result;
  if (value.get(result) != simdjson::SUCCESS) refuse(key, "a string", shown(value));
  return std::string(result);
}

bool JsonKeys::boolean(std::string_view key) const {
  const auto value = element(key, "true or false");
  bool result = false;
  if (value.get(result) != simdjson::SUCCESS) refuse(key, "true or false", shown(value));
  return result;
}

simdjson::dom::array JsonKeys::array(std::string_view key) const {
  const auto value = element(key, "a list");
  simdjson::dom::array result;
  if (value.get(result) != simdjson::SUCCESS) refuse(key, "a list", shown(value));
  return result;
}

std::optional<JsonKeys> JsonKeys::object(std::string_view key) const {
  if (!has(key)) return std::nullopt;
  const auto value = element(key, "an object");
  simdjson::dom::object result;
  if (value.get(result) != simdjson::SUCCESS) refuse(key, "an object", shown(value));
  return JsonKeys(result, file_, path_ + std::string(key) + ".");
}

}  // namespace nibble::model
