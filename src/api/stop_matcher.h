// Stop strings: found across any cutting of the text, and never shown.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace nibble::api {

// The text given out is what comes before the match that ends first (of two that end together the longer one), however the
// text was cut into pushes. Text that may yet become a match is held back.
class StopMatcher {
 public:
  // No string in `stops` is empty.
  explicit StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  // Returns what may be shown now. After a match, everything is swallowed.
  std::string push(std::string_view text);
  // Gives out what was held back: the text ends here, or something else than text follows.
  std::string flush();

  bool matched() const { return matched_; }

 private:
  std::size_t held_length(std::string_view text) const;

  std::vector<std::string> stops_;
  std::string held_;  // shorter than the longest stop string
  bool matched_ = false;
};

}  // namespace nibble::api
