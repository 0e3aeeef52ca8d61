// The rounding points and small vector functions of the specification, shared by the reference ops
// and by every host backend, so that "the same rounding" is the same function.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/matrix.h"
#include "ops/rope.h"
#include "ops/row_pool.h"

namespace nibble::ops::ref {

// x rounded to the nearest bf16, ties to even.
float bf16_round(float x);
void bf16_round(float* x, std::int64_t n);

// Rounds x to the FP8 grid in blocks (deepseek-v4.md 6.2): per block a = max(max|x|, 1e-4), s =
// 2^ceil(log2(a / 448)), x = e4m3(x / s) * s. A last partial block has a scale of its own.
void fp8_round_blocks(float* x, std::int64_t n, std::int64_t block);

// Rounds x to the FP4 grid in blocks of 32 (deepseek-v4.md 6.3): a = max(max|x|, 6 * 2^-126), s =
// 2^ceil(log2(a / 6)).
void fp4_round_blocks(float* x, std::int64_t n);

// x = H x / sqrt(n), Sylvester order; n is a power of two.
void hadamard(float* x, std::int64_t n);

// y = x * rsqrt(mean(x^2) + eps) * weight; weight may be null (no weight). In place allowed.
void rms_norm_row(const float* x, const float* weight, std::int64_t n, float eps, float* y);

// x *= rsqrt(mean(x^2) + eps), the query heads' norm. Release: in bf16 arithmetic, as published.
void query_norm_row(float* x, std::int64_t n, float eps, bool release);

// Rotates the last 2 * rope.pairs of n channels by sign * position * inv_freq.
void rope_row(float* x, std::int64_t n, std::int64_t position, const RopeTable& rope, float sign);

// Cached rows of `width` channels. store_row applies the format's rounding (for kFp4Index the Hadamard rotation as
// well); load_row gives the stored channels as fp32.
void store_row(RowFormat format, int width, const float* x, std::byte* row);
void load_row(RowFormat format, int width, const std::byte* row, float* x);

// Row r of the matrix as fp32, all cols.
void decode_matrix_row(const Matrix& matrix, std::int64_t r, float* out);

}  // namespace nibble::ops::ref
