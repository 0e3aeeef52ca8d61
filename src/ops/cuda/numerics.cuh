// Rounding and reductions on the device. The grids are those of src/quant, compiled for the device from the same headers, so
// that "the same rounding" is the same function on every backend.
#pragma once

#include <cstdint>

#include "ops/rope.h"
#include "quant/bf16.h"
#include "quant/e2m1.h"
#include "quant/e4m3.h"
#include "quant/e8m0.h"
#include "quant/fp8_block.h"
#include "quant/mxfp4.h"

namespace nibble::ops::cuda {

inline constexpr int kWarp = 32;
inline constexpr float kFp8AmaxFloor = 1e-4f;  // deepseek-v4.md 6.2

__device__ inline float e4m3_value(std::uint8_t code) {
  return quant::internal::e4m3_decode_bits(code);
}

// 0 .5 1 1.5 2 3 4 6: an exponent above 0 makes 1.m x 2^(e - 1), exponent 0 makes m / 2.
__device__ inline float e2m1_value(std::uint32_t code) {
  const std::uint32_t exponent = (code >> 1) & 3u, mantissa = code & 1u;
  const float magnitude = exponent == 0 ? 0.5f * static_cast<float>(mantissa)
                                        : __uint_as_float((126u + exponent) << 23 | mantissa << 22);
  return code & 8u ? -magnitude : magnitude;
}

// Unsigned integers in the order of the floats.
__device__ inline std::uint32_t sortable(float x) {
  const std::uint32_t bits = __float_as_uint(x == 0.0f ? 0.0f : x);  // -0 ties with 0
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// sqrt(softplus(x)), a router's score of its logit (deepseek-v4.md 4).
__device__ inline float router_score(float x) {
  return sqrtf(fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))));
}

// --- reductions: the order of the sum is fixed by the number of threads, never by the batch -----------------------------------

__device__ inline float warp_sum(float x) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2)
    x += __shfl_xor_sync(0xFFFFFFFFu, x, offset);
  return x;
}

__device__ inline float warp_max(float x) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2)
    x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, offset));
  return x;
}

// Of all threads of the block, a multiple of 32 and at most 1024; every thread gets the result. Contains barriers.
template <typename Combine>
__device__ float block_reduce(float x, float identity, Combine combine) {
  __shared__ float s_partial[kWarp];
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, warps = blockDim.x / kWarp;
  x = combine(x);
  __syncthreads();  // an earlier reduction may still be reading
  if (lane == 0) s_partial[warp] = x;
  __syncthreads();
  return combine(lane < warps ? s_partial[lane] : identity);
}
__device__ inline float block_sum(float x) {
  return block_reduce(x, 0.0f, [](float v) { return warp_sum(v); });
}
__device__ inline float block_max(float x) {
  return block_reduce(x, -INFINITY, [](float v) { return warp_max(v); });
}

// --- vectors of one block, in shared or global memory; all threads take part, barriers inside ---------------------------------

// y[i] = x[i] * rsqrt(mean(x^2) + eps) * weight[i] (weight may be null), bf16-rounded in release. In place allowed.
__device__ inline void rms_norm_row(const float* x, const float* weight, int n, float eps,
                                    bool release, float* y) {
  float square = 0.0f;
  for (int i = threadIdx.x; i < n; i += blockDim.x) square = fmaf(x[i], x[i], square);
  square = block_sum(square);
  const float s = 1.0f / sqrtf(square / static_cast<float>(n) + eps);
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    const float v = weight ? x[i] * s * weight[i] : x[i] * s;
    y[i] = release ? quant::bf16_round(v) : v;
  }
  __syncthreads();
}

// Rotates the last 2 * pairs channels by sign * position * inv_freq; bf16 afterwards in release (the whole row).
__device__ inline void rope_row(float* x, int n, std::int64_t position, const RopeTable& rope,
                                float sign, bool release) {
  const int first = n - 2 * rope.pairs;
  for (int i = threadIdx.x; i < rope.pairs; i += blockDim.x) {
    const float angle = static_cast<float>(position) * rope.inv_freq[i];
    float sine, cosine;
    sincosf(angle, &sine, &cosine);
    sine *= sign;
    const float a = x[first + 2 * i], b = x[first + 2 * i + 1];
    x[first + 2 * i] = a * cosine - b * sine;
    x[first + 2 * i + 1] = a * sine + b * cosine;
  }
  __syncthreads();
  if (!release) return;
  for (int i = threadIdx.x; i < n; i += blockDim.x) x[i] = quant::bf16_round(x[i]);
  __syncthreads();
}

__device__ inline void bf16_round_row(float* x, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) x[i] = quant::bf16_round(x[i]);
  __syncthreads();
}

// x = H x / sqrt(n) in Sylvester order; n a power of two.
__device__ inline void hadamard_row(float* x, int n) {
  for (int half = 1; half < n; half *= 2) {
    for (int pair = threadIdx.x; pair < n / 2; pair += blockDim.x) {
      const int i = pair / half * 2 * half + pair % half;
      const float a = x[i], b = x[i + half];
      x[i] = a + b;
      x[i + half] = a - b;
    }
    __syncthreads();
  }
  const float scale = 1.0f / sqrtf(static_cast<float>(n));
  for (int i = threadIdx.x; i < n; i += blockDim.x) x[i] *= scale;
  __syncthreads();
}

// --- one warp, one group that shares a scale ----------------------------------------------------------------------------------

// The FP8 scale byte of x[0 .. count), count <= 128 (deepseek-v4.md 6.2).
__device__ inline std::uint8_t fp8_group_scale(const float* x, int count) {
  float amax = kFp8AmaxFloor;
  for (int i = threadIdx.x % kWarp; i < count; i += kWarp) amax = fmaxf(amax, fabsf(x[i]));
  return quant::fp8_scale(warp_max(amax));
}

// out[0 .. count) = x on the FP8 grid with a scale of its own; in place allowed.
__device__ inline void fp8_round_group(const float* x, int count, float* out) {
  const std::uint8_t code = fp8_group_scale(x, count);
  const float scale = quant::e8m0_decode(code), inverse = quant::e8m0_reciprocal(code);
  __syncwarp();
  for (int i = threadIdx.x % kWarp; i < count; i += kWarp)
    out[i] = e4m3_value(quant::e4m3_encode(x[i] * inverse)) * scale;
}

// The FP4 scale byte of 32 values, one a lane.
__device__ inline std::uint8_t fp4_group_scale(float x) {
  return quant::mxfp4_scale(warp_max(fabsf(x)));
}

}  // namespace nibble::ops::cuda
