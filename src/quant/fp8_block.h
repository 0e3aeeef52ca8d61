// FP8 weights with one scale a square block (128 x 128, or 32 x 32), and FP8 groups of activations.
//
//   weight[r][c] = e4m3(code[r][c]) * scale[r / block][c / block]
//
// Blocks at the lower and right edge may be partial. Rows of codes are contiguous; scales are a
// matrix of their own, [ceil(rows/block), ceil(cols/block)], in E8M0, F32 or BF16, kept as they are.
// With a power of two as the scale a decoded value is exact in fp32 unless it leaves fp32's range;
// otherwise it is rounded once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "quant/e4m3.h"
#include "quant/e8m0.h"
#include "quant/scale.h"

namespace nibble::quant {

inline constexpr std::int64_t kFp8Block = 128;  // of activations, and the usual one of weights
inline constexpr std::int64_t kFp8SmallBlock = 32;

// One row's part of a block: what a kernel decodes with a single scale.
struct Fp8BlockRow {
  std::uint8_t codes[kFp8Block];
};
static_assert(sizeof(Fp8BlockRow) == 128);

struct Fp8SmallBlockRow {
  std::uint8_t codes[kFp8SmallBlock];
};
static_assert(sizeof(Fp8SmallBlockRow) == 32);

// Largest scale byte whose block cannot leave fp32's range: 448 * 2^119 is finite, 448 * 2^120 is
// not.
inline constexpr std::uint8_t kFp8MaxFiniteScale = 246;

constexpr std::int64_t fp8_blocks(std::int64_t size, std::int64_t block = kFp8Block) {
  return (size + block - 1) / block;
}

// The power of two that brings amax to at most 448: 2^ceil(log2(amax / 448)). Multiplying by
// fp32(1/448) instead of dividing is the reference's arithmetic; the two agree wherever amax / 448
// is a normal fp32 (fp8_block_test goes through all mantissas).
constexpr std::uint8_t fp8_scale(float amax) {
  return e8m0_ceil(amax * (1.0f / kE4M3Max));
}

// out[cols] = one row; scales holds the ceil(cols/block) scales of the row's block row.
void fp8_decode_row(std::span<const std::uint8_t> codes, std::int64_t block,
                    tensor::DType scale_dtype, const std::byte* scales, std::span<float> out);

// Quantises a group that shares one scale (an activation's 128 channels, a cache row's 64): the
// scale byte is returned, codes are values / scale rounded to nearest even. amax is floored at
// `amax_floor` (the reference uses 1e-4 for activations), so a group of zeros has a scale too.
// Values are finite.
std::uint8_t fp8_encode_group(std::span<const float> values, float amax_floor,
                              std::span<std::uint8_t> codes);

// Quantises a matrix [rows, cols], row-major, into codes [rows, cols] and scales
// [ceil(rows/block), ceil(cols/block)] of scale_dtype. The scale is fp8_scale(amax) in E8M0, else
// amax / 448 rounded to the type; codes are value / scale to nearest even, saturating. Values are
// finite. A block of zeros gets scale 1.
void fp8_encode_blocks(std::span<const float> values, std::int64_t rows, std::int64_t cols,
                       std::int64_t block, tensor::DType scale_dtype, std::span<std::uint8_t> codes,
                       std::span<std::byte> scales);

}  // namespace nibble::quant
