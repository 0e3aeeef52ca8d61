#include "api/openai/fields.h"

#include <fmt/format.h>

#include <charconv>

#include "api/errors.h"

namespace nibble::api::openai {
namespace {

constexpr std::size_t kShownBytes = 60;

// A value as it stands in the request, short enough for a message and cut at a character.
std::string shown(const Json& value) {
  if (value.raw.size() <= kShownBytes) return std::string(value.raw);
  std::size_t end = kShownBytes;
  while (end > 0 && (static_cast<unsigned char>(value.raw[end]) & 0xC0) == 0x80) --end;
  return std::string(value.raw.substr(0, end)) + "...";
}

bool equals(const Json& value, std::string_view expected) {
  if (expected == "[]") return value.is(Json::Kind::kArray) && value.items.empty();
  if (expected == "{}") return value.is(Json::Kind::kObject) && value.items.empty();
  if (value.is(Json::Kind::kNumber)) {
    double wanted = 0;
    const auto parsed = std::from_chars(expected.data(), expected.data() + expected.size(), wanted);
    return parsed.ec == std::errc() && value.number() == wanted;
  }
  if (value.is(Json::Kind::kString))
    return expected.size() >= 2 && expected.front() == '"' &&
           value.string == expected.substr(1, expected.size() - 2);
  return value.raw == expected;
}

}  // namespace

void fail_kind(const std::string& path, std::string_view expected, const Json& found) {
  throw RequestError(path, fmt::format("{}: expected {}, found {}", path.empty() ? "body" : path,
                                       expected, json_kind_name(found.kind)));
}

Fields::Fields(const Json& object, std::string path) : object_(object), path_(std::move(path)) {
  if (!object.is(Json::Kind::kObject)) fail_kind(path_, "an object", object);
  read_.resize(object.items.size());
}

std::string Fields::path(std::string_view name) const {
  return path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name);
}

const Json* Fields::optional(std::string_view name) {
  const Json* found = nullptr;
  for (std::size_t i = 0; i < read_.size(); ++i) {
    if (object_.items[i].key != name) continue;
    read_[i] = true;
    found = &object_.items[i];  // the last one counts
  }
  return found && !found->is(Json::Kind::kNull) ? found : nullptr;
}

const Json& Fields::required(std::string_view name) {
  if (const Json* value = optional(name)) return *value;
  throw RequestError(path(name), fmt::format("{} is required", path(name)),
                     "missing_required_parameter");
}

std::optional<bool> Fields::boolean(std::string_view name) {
  const Json* value = optional(name);
  if (!value) return std::nullopt;
  if (!value->is(Json::Kind::kBool)) fail_kind(path(name), "a boolean", *value);
  return value->boolean();
}

std::optional<std::int64_t> Fields::integer(std::string_view name, std::int64_t low,
                                            std::int64_t high) {
  const Json* value = optional(name);
  if (!value) return std::nullopt;
  if (!value->is(Json::Kind::kNumber)) fail_kind(path(name), "a whole number", *value);
  const std::optional<std::int64_t> number = value->integer();
  if (!number)
    throw RequestError(path(name), fmt::format("{}: expected a whole number, found {}", path(name),
                                               shown(*value)));
  if (*number < low || *number > high)
    throw RequestError(
        path(name), fmt::format("{}: expected {} to {}, found {}", path(name), low, high, *number));
  return number;
}

std::optional<double> Fields::number(std::string_view name, double low, double high) {
  const Json* value = optional(name);
  if (!value) return std::nullopt;
  if (!value->is(Json::Kind::kNumber)) fail_kind(path(name), "a number", *value);
  const std::optional<double> number = value->number();
  if (!number || *number < low || *number > high)
    throw RequestError(path(name), fmt::format("{}: expected {} to {}, found {}", path(name), low,
                                               high, shown(*value)));
  return number;
}

std::optional<std::string_view> Fields::string(std::string_view name) {
  const Json* value = optional(name);
  if (!value) return std::nullopt;
  if (!value->is(Json::Kind::kString)) fail_kind(path(name), "a string", *value);
  return value->string;
}

const Json* Fields::array(std::string_view name) {
  const Json* value = optional(name);
  if (value && !value->is(Json::Kind::kArray)) fail_kind(path(name), "an array", *value);
  return value;
}

const Json* Fields::object(std::string_view name) {
  const Json* value = optional(name);
  if (value && !value->is(Json::Kind::kObject)) fail_kind(path(name), "an object", *value);
  return value;
}

void Fields::neutral(std::span<const NeutralField> fields) {
  for (const NeutralField& field : fields) {
    const Json* value = optional(field.name);
    if (!value) continue;
    if (equals(*value, field.value) || equals(*value, field.other_value)) continue;
    std::string message = fmt::format("{} is not supported by this server", path(field.name));
    if (!field.value.empty())
      message += fmt::format(" (only {}, found {})", field.value, shown(*value));
    throw RequestError(path(field.name), message, "unsupported_parameter");
  }
}

void Fields::ignore(std::span<const std::string_view> names) {
  for (const std::string_view name : names) (void)optional(name);
}

void Fields::refuse_rest() const {
  for (std::size_t i = 0; i < read_.size(); ++i) {
    if (read_[i] || object_.items[i].is(Json::Kind::kNull)) continue;
    const std::string name = path(object_.items[i].key);
    throw RequestError(name, fmt::format("unknown field {}", name), "unknown_parameter");
  }
}

}  // namespace nibble::api::openai
