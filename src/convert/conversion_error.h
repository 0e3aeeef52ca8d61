// How far converted matrices are from what they were made of, in the fp32 values that loading either
// gives. Sums are taken in a fixed order, so a report does not depend on the number of threads.
#pragma once

#include <cstdint>

#include "quant/matrix_format.h"

namespace nibble::convert {

// A block is what shares a scale in the target; in a target without scales, in the source; else a row.
struct MatrixError {
  std::int64_t values = 0;
  std::int64_t inexact_values = 0;
  std::int64_t blocks = 0;
  std::int64_t inexact_blocks = 0;  // with a value that changed
  double squares = 0.0;             // of the differences
  double norm = 0.0;                // of the source's values, squared
  double worst = 0.0;               // the largest difference
  std::int64_t worst_row = 0, worst_col = 0;

  bool exact() const { return inexact_values == 0; }
  // |found - expected|_2 / |expected|_2; 0 when both vanish, infinite when only the second does.
  double relative_rms() const;
  // Counts and squares; `worst` is the larger one, its place this one's when it is no larger.
  void add(const MatrixError& other);
};

// Same rows and columns. Zeros of different sign are equal. Every value of `made` must be finite,
// which the caller has seen to (largest_fits).
MatrixError compare(const quant::HostMatrix& source, const quant::HostMatrix& made);

}  // namespace nibble::convert
