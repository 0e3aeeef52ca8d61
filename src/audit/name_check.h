// File names that mislead a person, a terminal or another file system.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace nibble::audit {

// Why `name` (UTF-8 or any bytes, with slashes) should not be a file's name: control characters and terminal escapes, characters
// that turn the direction of text or are not seen, bytes that are not UTF-8, backslashes, blanks at an end.
std::optional<std::string> name_problem(std::string_view name);

// The same for two names that a file system without case keeps apart badly: equal keys collide. ASCII case only.
std::string case_key(std::string_view name);

bool is_ascii(std::string_view name);

// The name as text that any terminal and any JSON reader can take: bytes outside printable ASCII as \xNN.
std::string printable(std::string_view name);

}  // namespace nibble::audit
