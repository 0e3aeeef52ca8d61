#include "text/generated_call.h"

#include "text/python_json.h"
#include "text/utf8.h"

namespace nibble::text {

namespace {

constexpr std::string_view kJsonSpace = " \t\r\n";

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(kJsonSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kJsonSpace) - first + 1);
}

}  // namespace

std::optional<std::string> arguments_json(const GeneratedCall& call, const Schemas& schemas) {
  const auto found = schemas.find(call.name);
  const ToolSchema* schema = found == schemas.end() ? nullptr : &found->second;
  if (schema != nullptr && call.parameters.size() == 1) {
    const GeneratedParameter& only = call.parameters[0];
    const bool wraps = only.name == "arguments" || only.name == "input";
    if (wraps && !schema->has_parameter(only.name)) {
      const auto inner = parse_json(lossy_utf8(only.value));
      if (inner && inner->kind == Json::Kind::kObject) {
        for (const JsonMember& member : inner->members) {
          if (!schema->allows(member.key, member.value)) return std::nullopt;
        }
        return python_json(*inner);
      }
    }
  }
  std::string out = "{";
  for (std::size_t i = 0; i < call.parameters.size(); ++i) {
    const GeneratedParameter& parameter = call.parameters[i];
    const std::string name = lossy_utf8(parameter.name);
    for (std::size_t j = 0; j < i; ++j) {
      if (call.parameters[j].name == parameter.name) return std::nullopt;
    }
    if (i > 0) out += ", ";
    out += python_json_string(name) + ": ";
    const std::string value = lossy_utf8(parameter.value);
    if (parameter.is_string) {
      out += python_json_string(value);
      continue;
    }
    const auto json = parse_json(value);
    if (!json || (schema != nullptr && !schema->allows(name, *json))) return std::nullopt;
    out += trimmed(value);
  }
  return out + "}";
}

std::string as_text(const GeneratedCall& call, bool closed) {
  std::string out = call.name + "(";
  for (std::size_t i = 0; i < call.parameters.size(); ++i) {
    if (i > 0) out += ", ";
    out += call.parameters[i].name + "=" + call.parameters[i].value;
  }
  if (closed) out += ")";
  return out + call.stray;
}

}  // namespace nibble::text
