#include "text/tool_schema.h"

#include <cmath>
#include <cstdlib>
#include <optional>

namespace nibble::text {

namespace {

enum KindBit : std::uint8_t {
  kNullBit = 1,
  kBoolBit = 2,
  kIntegerBit = 4,
  kFractionBit = 8,  // a number that is no integer
  kStringBit = 16,
  kArrayBit = 32,
  kObjectBit = 64,
};

std::optional<std::uint8_t> bits_of(std::string_view type) {
  if (type == "null") return kNullBit;
  if (type == "boolean") return kBoolBit;
  if (type == "integer") return kIntegerBit;
  if (type == "number") return kIntegerBit | kFractionBit;
  if (type == "string") return kStringBit;
  if (type == "array") return kArrayBit;
  if (type == "object") return kObjectBit;
  return std::nullopt;
}

// JSON Schema counts 1.0 and 1e3 as integers too.
bool is_integer(const std::string& spelling) {
  if (spelling.find_first_of(".eE") == std::string::npos) return true;
  const double value = std::strtod(spelling.c_str(), nullptr);
  return std::isfinite(value) && value == std::floor(value);
}

std::uint8_t bit_of(const Json& value) {
  switch (value.kind) {
    case Json::Kind::kNull:
      return kNullBit;
    case Json::Kind::kBool:
      return kBoolBit;
    case Json::Kind::kNumber:
      return is_integer(value.text) ? kIntegerBit : kFractionBit;
    case Json::Kind::kString:
      return kStringBit;
    case Json::Kind::kArray:
      return kArrayBit;
    case Json::Kind::kObject:
      return kObjectBit;
  }
  return 0;
}

std::uint8_t allowed_bits(const Json& property) {
  const Json* type = property.find("type");
  if (type == nullptr) return 0;
  if (type->kind == Json::Kind::kString) return bits_of(type->text).value_or(0);
  std::uint8_t bits = 0;
  for (const Json& one : type->items) {
    const auto bit = one.kind == Json::Kind::kString ? bits_of(one.text) : std::nullopt;
    if (!bit) return 0;
    bits |= *bit;
  }
  return bits;
}

}  // namespace

ToolSchema::ToolSchema(const Json& function) {
  if (const Json* name = function.find("name")) name_ = name->text;
  const Json* parameters = function.find("parameters");
  const Json* properties = parameters == nullptr ? nullptr : parameters->find("properties");
  if (properties == nullptr) return;
  for (const JsonMember& member : properties->members) {
    kinds_[member.key] = allowed_bits(member.value);
  }
}

bool ToolSchema::allows(const std::string& parameter, const Json& value) const {
  const auto found = kinds_.find(parameter);
  if (found == kinds_.end() || found->second == 0 || value.kind == Json::Kind::kNull) return true;
  return (found->second & bit_of(value)) != 0;
}

}  // namespace nibble::text
