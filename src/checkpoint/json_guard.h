// Two questions about JSON from a checkpoint that simdjson 3.0 does not answer.
#pragma once

#include <simdjson.h>

#include <optional>
#include <string>
#include <string_view>

namespace nibble::checkpoint {

// Headers and indices are three levels deep; their extra keys may be deeper, but not without end.
inline constexpr int kMaxJsonDepth = 64;
// Brackets, commas and colons outside of text. A tensor's entry in a header has about 20, and kMaxTensors is 400,000.
inline constexpr int kMaxJsonMarks = 12'000'000;

// Why the text is not worth parsing: nested deeper than kMaxJsonDepth, closed more often than opened, or more than kMaxJsonMarks. Asked
// first because simdjson would index every mark before we see one: 2 s and 500 MB for 100 MB of brackets.
std::optional<std::string> json_problem(std::string_view text);

// True when something follows the document's value. Ask after the root object has been walked to its end.
bool has_more(simdjson::ondemand::document& document);

}  // namespace nibble::checkpoint
