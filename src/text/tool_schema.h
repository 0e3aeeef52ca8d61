// What the output parser needs to know of a tool: its parameters and their types.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "text/python_json.h"

namespace nibble::text {

class ToolSchema {
 public:
  // `function`: OpenAI's function object. Parts that are missing or odd allow everything.
  explicit ToolSchema(const Json& function);

  const std::string& name() const { return name_; }
  bool has_parameter(const std::string& parameter) const { return kinds_.contains(parameter); }

  // Whether the value is of a type that the parameter's `type` names. true for null (an absent
  // value), for a parameter that is not in the schema or has no `type`.
  bool allows(const std::string& parameter, const Json& value) const;

 private:
  std::string name_;
  std::map<std::string, std::uint8_t> kinds_;  // bits of the allowed kinds, 0: any
};

}  // namespace nibble::text
