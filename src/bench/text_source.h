// Where a trace's words come from: a text file of the user's, or sentences made up from a seed.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include "bench/random.h"

namespace nibble::bench {

// Immutable. What it gives depends on the Random alone.
class TextSource {
 public:
  // Questions and statements of the kinds the bundled model was trained on: sums, lists, records, facts about invented people.
  static TextSource generated();
  // Slices of the file. Throws Error(kUsage) when it cannot be read, is not UTF-8, or is shorter than 1,000 bytes.
  static TextSource from_file(const std::filesystem::path& path);

  // About `bytes` of text: whole sentences, or a slice between two blanks; longer than the file repeats it.
  std::string passage(Random& random, std::size_t bytes) const;
  // A line that asks for something.
  std::string question(Random& random) const;

  const std::string& description() const { return description_; }  // for the report

 private:
  std::string text_;  // empty: generated
  std::string description_;
};

}  // namespace nibble::bench
