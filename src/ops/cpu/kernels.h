// The inner loops of the CPU backend, once for each kind of processor, with the same bits from all.
//
// Orders of the sums (a row's result depends on nothing else):
//   panel         per output one chain of fused multiply-adds over the columns of a block (panel.h),
//                 ascending, from zero; at its end total = fma(chain, scale, total); NVFP4: the
//                 last total times the global scale
//   dots, sums    16 partial sums, element i in partial i % 16, by fused multiply-adds; then the
//                 partials are added in a tree: i with i + 8, i + 4, i + 2, i + 1
//   weighted_sum, pool   per channel one chain over the rows, ascending
//
// Pointers need no alignment. Sizes may be 0, except where said.
#pragma once

#include <cstdint>

#include "ops/argmax.h"
#include "ops/cpu/isa.h"
#include "ops/cpu/panel.h"
#include "ops/row_pool.h"

namespace nibble::ops::cpu {

inline constexpr int kMaxStreams = 8;
inline constexpr int kMaxIndexHeads = 256;

struct Kernels {
  const char* isa;  // "AVX2", "portable"
  bool vector;

  // out[t][0..31] = panel * x[t] for n tokens; x[t] points to panel.cols floats.
  void (*panel)(const Panel& panel, const float* const* x, std::int64_t n, float* out);

  // out[i * out_stride] = sum of rows[i * stride + c] * x[c], c < n, for i < count.
  void (*dots)(const float* rows, std::int64_t stride, std::int64_t count, const float* x,
               std::int64_t n, float* out, std::int64_t out_stride);
  float (*sum_squares)(const float* x, std::int64_t n);
  // Of the squares rounded to bf16 one by one.
  float (*sum_squares_bf16)(const float* x, std::int64_t n);
  // The largest of x[0..n) and floor.
  float (*max)(const float* x, std::int64_t n, float floor);
  // The first index of the largest of x[0..n), n > 0; kNoBest (ops/argmax.h) where a NaN is among them or the largest is not
  // finite.
  std::int32_t (*argmax)(const float* x, std::int64_t n);
  // x[i] = exp(x[i] - top); returns their sum.
  float (*exp_sum)(float* x, std::int64_t n, float top);
  // out[h * out_stride + d] = sum of p[h * p_stride + j] * rows[j][d], j < count, for begin <= d <
  // end, h < heads.
  void (*weighted_sum)(const float* const* rows, std::int64_t count, const float* p,
                       std::int64_t p_stride, std::int64_t heads, std::int64_t begin,
                       std::int64_t end, float* out, std::int64_t out_stride);

  // y = x * s * weight (weight may be null); in place allowed.
  void (*scale)(const float* x, float s, const float* weight, std::int64_t n, float* y);
  void (*divide)(float* x, float by, std::int64_t n);
  void (*add)(const float* a, std::int64_t n, float* sum);  // sum[i] = a[i] + sum[i]
  // x = x * cos + swap(x) * sin over pairs (even, odd); cos and sin as RopeRow has them.
  void (*rotate)(float* x, const float* cos, const float* sin, std::int64_t n);
  // H x / sqrt(n); n a power of two.
  void (*hadamard)(float* x, std::int64_t n);

  // The roundings of ops/ref/rounding.h, in place.
  void (*round_bf16)(float* x, std::int64_t n);
  void (*round_fp8)(float* x, std::int64_t n, std::int64_t block);
  void (*round_fp4)(float* x, std::int64_t n);

  // A row of a pool: bytes at `row` to and from `width` floats.
  void (*load_row)(RowFormat format, int width, const std::byte* row, float* x);
  void (*store_row)(RowFormat format, int width, const float* x, std::byte* row);

  // streams[k] = post[k] * out + sum_j comb[j][k] * streams[j]; streams [hc][d], hc <= kMaxStreams.
  void (*expand)(float* streams, const float* out, const float* post, const float* comb,
                 std::int64_t hc, std::int64_t d, bool release);
  // y = sum_k weight[k] * streams[k]
  void (*collapse)(const float* streams, const float* weight, std::int64_t hc, std::int64_t d,
                   bool release, float* y);
  // gate = weight * silu(min(gate, limit)) * clamp(up, -limit, limit); release: gate and up are
  // rounded to bf16 before, the product after.
  void (*swiglu)(float* gate, const float* up, float weight, float limit, std::int64_t n,
                 bool release);
  // entry[d] = sum_j softmax_j(gates[j][d]) * values[j][d], j < rows; rows >= 1.
  void (*pool)(const float* const* values, const float* const* gates, std::int64_t rows,
               std::int64_t width, float* entry);
  // out[w] = sum_h weights[h] * max(q[h] . keys[w], 0); q [heads][width], keys [count][width],
  // heads <= kMaxIndexHeads.
  void (*index_scores)(const float* q, std::int64_t heads, std::int64_t width, const float* weights,
                       const float* keys, std::int64_t count, float* out);
  // x[i] = exp(x[i]): the function behind exp_sum, swiglu and pool, for its test.
  void (*exp)(float* x, std::int64_t n);
};

// Valid for the life of the process. An Isa that this processor lacks is a NIBBLE_CHECK.
const Kernels& kernels(Isa isa);

}  // namespace nibble::ops::cpu
