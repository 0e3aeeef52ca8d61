// Pieces of JSON text for the files a converted checkpoint needs: safetensors headers, the index, and
// config.json.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace nibble::convert {

// `text` (valid UTF-8) with quotes and escapes.
std::string json_string(std::string_view text);

// Members of an object, in order: key, and JSON text of the value.
using JsonMembers = std::vector<std::pair<std::string, std::string>>;

// One member a line, indented by `indent` + 2 spaces; the values' text is taken as it is.
std::string json_object(const JsonMembers& members, int indent = 0);

// "[a, b]" of values that are JSON text.
std::string json_array(const std::vector<std::string>& values);

// The members of the object that `text` holds, values as they are written in it. Throws
// CheckpointError, beginning with `file`, when it holds anything else.
JsonMembers parse_members(std::string_view text, const std::string& file);

}  // namespace nibble::convert
