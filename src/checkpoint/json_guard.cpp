#include "checkpoint/json_guard.h"

#include <fmt/format.h>

namespace nibble::checkpoint {

std::optional<std::string> json_problem(std::string_view text) {
  int depth = 0;
  int marks = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') {
        ++i;  // whatever is escaped ends nothing
      } else if (c == '"') {
        in_string = false;
      }
      continue;
    }
    switch (c) {
      case '"':
        in_string = true;
        continue;
      case '[':
      case '{':
        ++depth;
        break;
      case ']':
      case '}':
        --depth;
        break;
      case ',':
      case ':':
        break;
      default:
        continue;
    }
    if (depth < 0 || depth > kMaxJsonDepth) {
      return fmt::format("JSON is badly nested (at most {} levels)", kMaxJsonDepth);
    }
    if (++marks > kMaxJsonMarks) {
      return fmt::format("JSON has more than {} brackets, commas and colons", kMaxJsonMarks);
    }
  }
  return std::nullopt;
}

bool has_more(simdjson::ondemand::document& document) {
  const char* place = nullptr;
  return document.current_location().get(place) != simdjson::OUT_OF_BOUNDS;
}

}  // namespace nibble::checkpoint
