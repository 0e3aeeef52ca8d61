// String constants out of a Python source file, read as data. Nothing is ever run or imported.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "nibble/status.h"

namespace nibble::text {

struct PythonLiterals {
  std::map<std::string, std::string> strings;  // NAME = "..."
  // NAME = {"key": "...", ...}, a key given twice has its last value
  std::map<std::string, std::map<std::string, std::string>> dicts;
};

inline constexpr std::size_t kMaxPythonBytes = std::size_t{1} << 20;
inline constexpr int kMaxPythonDepth = 64;  // brackets inside each other

// Module-level assignments `NAME = value` and `NAME: annotation = value`, where value is one or
// more adjacent string literals ('...', "...", triple quotes, prefixes r and u), also in
// parentheses, or a dict of such strings. Everything else is stepped over; a name that is assigned
// anything else later is forgotten. Values are valid UTF-8. kInvalidArgument, with the line: too
// large, not UTF-8, a string or bracket that never ends, brackets too deep.
Result<PythonLiterals> parse_python_literals(std::string_view source);

}  // namespace nibble::text
