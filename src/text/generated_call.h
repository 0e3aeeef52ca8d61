// A tool call as it was generated, and what a client gets of it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "text/tool_schema.h"

namespace nibble::text {

struct GeneratedParameter {
  std::string name;
  bool is_string = false;
  std::string value;  // bytes as generated
};

struct GeneratedCall {
  std::string name;
  std::vector<GeneratedParameter> parameters;
  std::string stray;    // text that stood where only tags may
  bool broken = false;  // cannot be delivered
};

using Schemas = std::map<std::string, ToolSchema>;  // by tool name

// The arguments as a JSON object; nothing when they cannot be one: a parameter given twice, a typed value that is no JSON
// or not of the type its schema names. A single parameter `arguments` or `input` that holds an object is unwrapped when the
// tool is known and has no such parameter.
std::optional<std::string> arguments_json(const GeneratedCall& call, const Schemas& schemas);

// A call that cannot be delivered, for a person to read: NAME(KEY=VALUE, ...). Nothing of what the model wrote is left out
// but the markup. `closed`: its end was seen.
std::string as_text(const GeneratedCall& call, bool closed);

}  // namespace nibble::text
