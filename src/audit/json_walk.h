// Reads a JSON file of a checkpoint to its last byte, and shows every string in it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "audit/codes.h"

namespace nibble::audit {

// The place of a value: member names and [numbers], outermost first. Valid during the call.
using JsonPath = std::vector<std::string>;

// "quantization_config.format[0]", printable.
std::string path_text(const JsonPath& path);

struct JsonProblem {
  Code code;  // kJsonBroken, kJsonNested, kInvalidUtf8
  std::string message;
};

// Calls `show` for every string value, in the order of the text, duplicate members included; strings that are member names are
// in the paths. Returns why the text is not JSON; what was shown before that stands. Nesting is limited as in
// checkpoint/json_guard.h.
std::optional<JsonProblem> walk_json(
    std::string_view text, const std::function<void(const JsonPath&, std::string_view)>& show);

}  // namespace nibble::audit
