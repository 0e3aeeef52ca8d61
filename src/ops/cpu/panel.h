// How the CPU backend keeps a weight matrix: in panels of 32 rows, column by column, so that one
// column's 32 weights are one vector load and every output is one chain of fused multiply-adds over
// ascending columns, whatever the vector width and however many tokens share the step.
//
// Panel p holds rows 32 p .. 32 p + 31 (rows past the end are zeros); columns follow each other:
//   kF32           128 bytes a column, rows in order
//   kBF16           64 bytes: bf16_place(row) is the 16-bit word
//   kFp8Block128    32 bytes: fp8_place(row) is the byte; scales F32, in the published order
//   kFp8Block32     the same: a panel is one row of its blocks
//   kMxfp4          16 bytes: fp4_place(row) is the nibble, even ones low; scales [panels][cols/32][32]
//   kNvfp4          the same with scales [panels][cols/16][32]; the global scale multiplies the output
//   kInt4G32, G128  the same with scales [panels][cols/group][32], BF16 where published so, else F32
// The places make decoding shifts and masks, without a shuffle.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/matrix.h"
#include "quant/matrix_format.h"

namespace nibble::ops::cpu {

inline constexpr std::int64_t kPanelRows = 32;

constexpr std::int64_t panel_count(std::int64_t rows) {
  return (rows + kPanelRows - 1) / kPanelRows;
}

// Even words are rows 0..7 (then 16..23), odd words rows 8..15 (24..31).
constexpr std::int64_t bf16_place(std::int64_t row) {
  return row / 16 * 16 + row % 8 * 2 + row % 16 / 8;
}
// Even bytes are rows 0..15, odd bytes rows 16..31.
constexpr std::int64_t fp8_place(std::int64_t row) {
  return row % 16 * 2 + row / 16;
}
// Group v of eight rows: its rows 0..3 are low nibbles and 4..7 high ones, of four bytes two apart.
constexpr std::int64_t fp4_place(std::int64_t row) {
  const std::int64_t group = row / 8, i = row % 8;
  const std::int64_t byte = group / 2 * 8 + i % 4 * 2 + group % 2;
  return byte * 2 + i / 4;
}

// Bytes of one column of a panel.
constexpr std::int64_t panel_column_bytes(quant::Format format) {
  switch (format) {
    case quant::Format::kF32:
      return 4 * kPanelRows;
    case quant::Format::kBF16:
      return 2 * kPanelRows;
    case quant::Format::kFp8Block128:
    case quant::Format::kFp8Block32:
      return kPanelRows;
    case quant::Format::kMxfp4:
    case quant::Format::kNvfp4:
    case quant::Format::kInt4G32:
    case quant::Format::kInt4G128:
      return kPanelRows / 2;
  }
  return 0;
}

// Columns that share a scale: a chain of multiply-adds starts at zero for each, and is scaled and
// added to the output's total when it ends.
constexpr std::int64_t panel_block(quant::Format format) {
  switch (format) {
    case quant::Format::kNvfp4:
      return 16;
    case quant::Format::kFp8Block32:
    case quant::Format::kMxfp4:
    case quant::Format::kInt4G32:
      return 32;
    case quant::Format::kF32:
    case quant::Format::kBF16:
    case quant::Format::kFp8Block128:
    case quant::Format::kInt4G128:
      return 128;
  }
  return 0;
}

// Tokens that a thread takes through a panel together: their outputs (12 KB) and the decoded block
// (16 KB) share the first-level cache.
inline constexpr std::int64_t kTokenTile = 96;

// About what a column of a panel costs one thread, to decide how to share the work out.
constexpr double panel_column_ns(std::int64_t tokens) {
  return tokens == 1 ? 2.0 : 2.0 + 0.9 * static_cast<double>(tokens);
}

// One panel, as a kernel reads it.
struct Panel {
  quant::Format format = quant::Format::kF32;
  std::int64_t cols = 0;
  const std::byte* data = nullptr;
  const std::byte* scales = nullptr;  // FP8: a scale a block of columns; FP4, INT4: 32 of them
  tensor::DType scale_dtype = tensor::DType::kF8E8M0;
  float global_scale = 1.0f;  // kNvfp4
};

// The matrix in panels, from its published layout. Throws nibble::Error when an FP8 code or a scale
// is NaN, a wide scale infinite or an NVFP4 scale negative: those are damage, and the kernels' decoding
// does not know them.
quant::HostMatrix pack_panels(const quant::HostMatrix& published);

// Panel p of a matrix that pack_panels made.
Panel panel_of(const Matrix& packed, std::int64_t p);

// out[cols] = row r of a packed matrix, as quant::decode_row gives it.
void read_packed_row(const Matrix& packed, std::int64_t r, float* out);

}  // namespace nibble::ops::cpu
