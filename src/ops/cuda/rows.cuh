// Cached rows on the device, in the layouts of ops/row_pool.h.
#pragma once

#include <cstdint>

#include "ops/cuda/kernels.h"
#include "ops/cuda/numerics.cuh"

namespace nibble::ops::cuda {

// Channel d of a stored row.
__device__ inline float row_at(const Pool& pool, const std::byte* row, int d) {
  const auto* codes = reinterpret_cast<const std::uint8_t*>(row);
  const auto bf16_at = [&](int offset) {
    // Rows of odd sizes leave bf16 values on odd addresses.
    return quant::bf16_decode(static_cast<std::uint16_t>(codes[offset] | codes[offset + 1] << 8));
  };
  switch (pool.format) {
    case RowFormat::kF32:
      return reinterpret_cast<const float*>(row)[d];
    case RowFormat::kBf16:
      return quant::bf16_decode(reinterpret_cast<const std::uint16_t*>(row)[d]);
    case RowFormat::kFp8Nope: {
      const int nope = pool.width - kRopeChannels;
      if (d >= nope) return bf16_at(nope + 2 * (d - nope));
      return e4m3_value(codes[d]) *
             quant::e8m0_decode(codes[nope + 2 * kRopeChannels + d / kFp8RowBlock]);
    }
    case RowFormat::kFp4Index: {
      const std::uint32_t byte = codes[d / 2];
      return e2m1_value(d % 2 == 0 ? byte & 0xFu : byte >> 4) *
             quant::e8m0_decode(codes[pool.width / 2 + d / kFp4IndexBlock]);
    }
  }
  return 0.0f;
}

// Stores x[width], which lies in shared memory and is destroyed (kFp4Index rotates it). All threads of the block; whole warps.
__device__ inline void store_row(const Pool& pool, std::byte* row, float* x) {
  auto* out = reinterpret_cast<std::uint8_t*>(row);
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, warps = blockDim.x / kWarp;
  const auto put_bf16 = [&](int offset, float value) {
    const std::uint16_t bits = quant::bf16_encode(value);
    out[offset] = static_cast<std::uint8_t>(bits);
    out[offset + 1] = static_cast<std::uint8_t>(bits >> 8);
  };
  switch (pool.format) {
    case RowFormat::kF32:
      for (int i = threadIdx.x; i < pool.width; i += blockDim.x)
        reinterpret_cast<float*>(row)[i] = x[i];
      return;
    case RowFormat::kBf16:
      for (int i = threadIdx.x; i < pool.width; i += blockDim.x) put_bf16(2 * i, x[i]);
      return;
    case RowFormat::kFp8Nope: {
      const int nope = pool.width - kRopeChannels,
                blocks = (nope + kFp8RowBlock - 1) / kFp8RowBlock;
      for (int block = warp; block < blocks; block += warps) {
        const int begin = block * kFp8RowBlock, count = min(kFp8RowBlock, nope - begin);
        const std::uint8_t scale = fp8_group_scale(x + begin, count);
        const float inverse = quant::e8m0_reciprocal(scale);
        for (int i = lane; i < count; i += kWarp)
          out[begin + i] = quant::e4m3_encode(x[begin + i] * inverse);
        if (lane == 0) out[nope + 2 * kRopeChannels + block] = scale;
      }
      if (threadIdx.x == 0) out[nope + 2 * kRopeChannels + blocks] = 0;
      for (int i = threadIdx.x; i < kRopeChannels; i += blockDim.x)
        put_bf16(nope + 2 * i, x[nope + i]);
      return;
    }
    case RowFormat::kFp4Index: {
      hadamard_row(x, pool.width);
      bf16_round_row(x, pool.width);
      for (int block = warp; block < pool.width / kFp4IndexBlock; block += warps) {
        const float value = x[block * kFp4IndexBlock + lane];
        const std::uint8_t scale = fp4_group_scale(value);
        const std::uint32_t code = quant::e2m1_encode(value * quant::e8m0_reciprocal(scale));
        const std::uint32_t next = __shfl_down_sync(0xFFFFFFFFu, code, 1);
        if (lane % 2 == 0)
          out[(block * kFp4IndexBlock + lane) / 2] = static_cast<std::uint8_t>(code | next << 4);
        if (lane == 0) out[pool.width / 2 + block] = scale;
      }
      return;
    }
  }
}

}  // namespace nibble::ops::cuda
