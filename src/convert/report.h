// What a conversion did to the weights, for people and for --json.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "convert/conversion_error.h"
#include "convert/encode.h"
#include "convert/target.h"

namespace nibble::convert {

// One converted matrix.
struct MatrixReport {
  std::string name;  // canonical, without suffix
  std::string kind;
  std::string from, to;  // formats, as the start-up table prints them
  EncodeStats stats;     // for a gate or up projection in NVFP4: of the pair
  MatrixError error;
};

// All converted matrices of one kind and one pair of formats.
struct KindReport {
  std::string kind, from, to;
  std::int64_t matrices = 0;
  std::int64_t inexact_matrices = 0;
  MatrixError error;
  std::string worst_matrix;  // where error.worst is; "" when exact
};

struct ConvertReport {
  std::string source, destination;
  Target target = Target::kNvfp4;
  std::int64_t shards = 0;
  std::int64_t source_bytes = 0;  // of tensors
  std::int64_t bytes = 0;         // of tensors in the result
  std::int64_t kept_tensors = 0;  // copied bit by bit, or an FP8 scale widened exactly
  std::int64_t kept_bytes = 0;    // of those, as in the result
  int threads = 0;
  std::int64_t memory_bytes = 0;  // what the jobs of all threads could need at once
  std::vector<MatrixReport> matrices;
  std::vector<KindReport> kinds;  // in the order in which they occur
  MatrixError total;
  std::vector<std::string> files;     // copied or written beside the shards
  std::vector<std::string> left_out;  // of the source's files
  std::vector<std::string> notes;

  bool exact() const { return total.exact(); }
  std::string verdict() const;  // one line
};

// Fills kinds and total from matrices.
void sum_up(ConvertReport& report);

}  // namespace nibble::convert
