#include "api/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace nibble::api {

std::string StopMatcher::push(std::string_view text) {
  if (matched_) return "";
  if (stops_.empty()) return std::string(text);
  const std::size_t old = held_.size();
  std::string all = std::move(held_);
  all += text;
  held_.clear();
  // The first place at which a stop string ends; nothing that ends inside the old part is one, or it had been found.
  for (std::size_t end = old + 1; end <= all.size(); ++end) {
    std::size_t longest = 0;
    const std::string_view prefix = std::string_view(all).substr(0, end);
    for (const std::string& stop : stops_)
      if (prefix.ends_with(stop)) longest = std::max(longest, stop.size());
    if (longest == 0) continue;
    matched_ = true;
    all.resize(end - longest);
    return all;
  }
  const std::size_t keep = held_length(all);
  held_ = all.substr(all.size() - keep);
  all.resize(all.size() - keep);
  return all;
}

std::string StopMatcher::flush() {
  return std::exchange(held_, std::string());
}

// The longest end of `text` that begins a stop string.
std::size_t StopMatcher::held_length(std::string_view text) const {
  std::size_t longest = 0;
  for (const std::string& stop : stops_) {
    std::size_t length = std::min(stop.size() - 1, text.size());
    while (length > longest && !text.ends_with(std::string_view(stop).substr(0, length))) --length;
    longest = std::max(longest, length);
  }
  return longest;
}

}  // namespace nibble::api
