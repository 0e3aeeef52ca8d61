// The order in which the Hopper kernels stream a weight matrix, so that every copy is one contiguous run and every lane's load is
// its own operand (quantization.md 5.2; the order of K inside an instruction does not matter to its result: docs/perf-log.md).
//
// A matrix is cut into bricks of 16 rows x block_cols columns. A chunk is what one stage of the pipeline holds of 32 rows: for
// each of four K segments (one a warpgroup) two bricks. Chunks of 32 rows follow each other by stage, row blocks by row.
//
//   row block = r / 32, brick = r % 32 / 16
//   K block b = c / block_cols; with q = stages a part: part p = b / 4q, segment w = b % 4q / q, stage = p q + b % q
//
// Inside a brick lane 4g + t holds rows g and g + 8 and the columns [t, t + 1) * block_cols / 4 of each:
//   kMxfp4        [row half][lane][16 B]: four words of eight codes; then a word a row. In a word code i has its magnitude in
//                 bits 4i + 2 .. 4i, the signs of codes 0-3 are bits 7, 15, 23, 31 and of 4-7 bits 3, 11, 19, 27. A row's word:
//                 the row's power of two as a fp32 exponent (bits 30-23, the same in all of its blocks) and for the lane's group
//                 of 32 in bits 4t + 3 .. 4t a number n <= 11, so that a weight is e2m1 * 2^(n - 5) * that power, and
//                 e2m1 * 2^(n - 5) is exact in E4M3.
//   kFp8Block128  [step 4][lane][row half of columns 0-3, of columns 4-7][4 B]; then the block's scale as fp32, padded to 16 B
//   kBF16         [step 4][lane][the same of columns 0-1 and 2-3][4 B]
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "ops/matrix.h"
#include "tensor/dtype.h"

namespace nibble::ops::cuda {

inline constexpr int kTileRows = 64;  // of one warpgroup's instruction; two row blocks
inline constexpr int kRowBlock = 32;
inline constexpr int kBrickRows = 16;
inline constexpr int kSegments = 4;
inline constexpr int kFp4Bias = 5;   // n of a weight that E4M3 holds unscaled
inline constexpr int kFp4Span = 11;  // largest n

constexpr int block_cols(quant::Format format) {
  return format == quant::Format::kBF16 ? 64 : 128;
}

constexpr int brick_bytes(quant::Format format) {
  switch (format) {
    case quant::Format::kMxfp4:
      return kBrickRows * 128 / 2 + kBrickRows * 4;
    case quant::Format::kFp8Block128:
      return kBrickRows * 128 + 16;
    default:
      return kBrickRows * 64 * 2;
  }
}

constexpr int chunk_bytes(quant::Format format) {
  return kSegments * 2 * brick_bytes(format);
}

struct TileLayout {
  int stages = 0;  // of the whole of K
  int parts = 1;   // pieces of K that different blocks sum, added in order

  constexpr int stages_a_part() const { return stages / parts; }
};

// K is cut until a product fills most of the 132 SMs of an H100 or H200 (constants, so that a sum's order is a function of the
// shape alone). Expert matrices stay whole: there are many.
inline constexpr int kMostParts = 4;  // blocks of a cluster

constexpr TileLayout tile_layout(quant::Format format, std::int64_t rows, std::int64_t cols) {
  TileLayout layout{static_cast<int>(cols / (kSegments * block_cols(format))), 1};
  if (format == quant::Format::kMxfp4) return layout;
  const std::int64_t tiles = rows / kTileRows;
  while (layout.parts < kMostParts && layout.stages % (2 * layout.parts) == 0 &&
         tiles * layout.parts < 120)
    layout.parts *= 2;
  return layout;
}

constexpr bool has_tiles(quant::Format format, std::int64_t rows, std::int64_t cols) {
  if (format != quant::Format::kMxfp4 && format != quant::Format::kFp8Block128 &&
      format != quant::Format::kBF16)
    return false;
  return rows > 0 && cols > 0 && rows % kTileRows == 0 &&
         cols % (kSegments * block_cols(format)) == 0;
}

constexpr std::int64_t tile_bytes(quant::Format format, std::int64_t rows, std::int64_t cols) {
  return rows / kRowBlock * tile_layout(format, rows, cols).stages * chunk_bytes(format);
}

// Of the brick that holds row r of K block `block`.
constexpr std::int64_t brick_offset(quant::Format format, std::int64_t rows, std::int64_t cols,
                                    std::int64_t r, std::int64_t block) {
  const TileLayout layout = tile_layout(format, rows, cols);
  const int q = layout.stages_a_part();
  const std::int64_t part = block / (kSegments * q), segment = block % (kSegments * q) / q,
                     stage = part * q + block % q;
  return (r / kRowBlock * layout.stages + stage) * chunk_bytes(format) +
         (segment * 2 + r % kRowBlock / kBrickRows) * brick_bytes(format);
}

// The layout's 8 columns c .. c + 7 of row r (c a multiple of 8) inside their brick: where the two four-byte words of FP8, the
// word of FP4 or the four words of bf16 begin, and how far they are apart.
struct BrickWords {
  int offset, stride;
};
constexpr BrickWords brick_words(quant::Format format, int row_in_brick, int c_in_block) {
  const int half = row_in_brick / 8, g = row_in_brick % 8;
  const int t = c_in_block / (block_cols(format) / 4), c = c_in_block % (block_cols(format) / 4),
            lane = 4 * g + t;
  switch (format) {
    case quant::Format::kMxfp4:
      return {half * 512 + lane * 16 + c / 8 * 4, 0};
    case quant::Format::kFp8Block128:
      return {c / 8 * 512 + lane * 16 + half * 4, 8};
    default:
      return {c / 4 * 512 + lane * 16 + half * 4, 8};  // columns 4 .. 7 in the next step: + 512
  }
}

// --- sm90/pack.cu ---

// Rewrites codes and scales in the published order (device memory) as tiles. False: the scales of some MXFP4 row span more than
// the layout holds, or one is NaN; `tiles` is then of no use.
bool pack_tiles(const Matrix& published, std::byte* tiles, cudaStream_t stream);

}  // namespace nibble::ops::cuda
