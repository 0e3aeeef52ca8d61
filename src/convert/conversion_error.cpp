#include "convert/conversion_error.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/check.h"

namespace nibble::convert {
namespace {

struct Block {
  std::int64_t rows, cols;
};

Block block_of(const quant::HostMatrix& source, const quant::HostMatrix& made) {
  for (const quant::HostMatrix* m : {&made, &source}) {
    const quant::FormatTraits& t = quant::traits(m->format);
    if (t.block_cols != 0) return {t.block_rows, t.block_cols};
  }
  return {1, std::max<std::int64_t>(made.cols, 1)};
}

}  // namespace

double MatrixError::relative_rms() const {
  if (norm > 0.0) return std::sqrt(squares / norm);
  return squares > 0.0 ? std::numeric_limits<double>::infinity() : 0.0;
}

void MatrixError::add(const MatrixError& other) {
  values += other.values;
  inexact_values += other.inexact_values;
  blocks += other.blocks;
  inexact_blocks += other.inexact_blocks;
  squares += other.squares;
  norm += other.norm;
  if (other.worst <= worst) return;
  worst = other.worst;
  worst_row = other.worst_row;
  worst_col = other.worst_col;
}

MatrixError compare(const quant::HostMatrix& source, const quant::HostMatrix& made) {
  NIBBLE_CHECK(source.rows == made.rows && source.cols == made.cols, "[{}, {}] against [{}, {}]",
               source.rows, source.cols, made.rows, made.cols);
  const Block block = block_of(source, made);
  const auto cols = static_cast<std::size_t>(made.cols);
  const auto block_cols = static_cast<std::size_t>(block.cols);
  std::vector<float> expected(cols), found(cols);
  std::vector<char> changed((cols + block_cols - 1) / block_cols);
  MatrixError error;
  error.values = made.rows * made.cols;
  for (std::int64_t r = 0; r < made.rows; ++r) {
    decode_row(source, r, expected);
    decode_row(made, r, found);
    for (std::size_t c = 0; c < cols; ++c) {
      const double value = expected[c];
      error.norm += value * value;
      if (found[c] == expected[c]) continue;
      const double off = std::fabs(found[c] - value);
      ++error.inexact_values;
      error.squares += off * off;
      changed[c / block_cols] = 1;
      if (off <= error.worst) continue;
      error.worst = off;
      error.worst_row = r;
      error.worst_col = static_cast<std::int64_t>(c);
    }
    if ((r + 1) % block.rows != 0 && r + 1 != made.rows) continue;
    error.blocks += static_cast<std::int64_t>(changed.size());
    error.inexact_blocks += std::count(changed.begin(), changed.end(), 1);
    std::fill(changed.begin(), changed.end(), 0);
  }
  return error;
}

}  // namespace nibble::convert
