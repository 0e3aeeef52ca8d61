// Weights decoded on the device, in the layouts of ops/matrix.h.
#pragma once

#include <cstdint>

#include "ops/cuda/numerics.cuh"
#include "ops/cuda/tiles.h"
#include "ops/matrix.h"
#include "quant/f16.h"

namespace nibble::ops::cuda {

inline constexpr int kDecodeWidth = 8;  // columns that one lane decodes at a time

// Element i of the matrix's scales as fp32, exact.
__device__ inline float scale_value(const Matrix& m, std::int64_t i) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(m.scales);
  switch (m.scale_dtype) {
    case tensor::DType::kF8E8M0:
      return quant::e8m0_decode(bytes[i]);
    case tensor::DType::kF8E4M3:
      return e4m3_value(bytes[i]);
    case tensor::DType::kBF16:
      return quant::bf16_decode(reinterpret_cast<const std::uint16_t*>(m.scales)[i]);
    case tensor::DType::kF16:
      return quant::f16_decode(reinterpret_cast<const std::uint16_t*>(m.scales)[i]);
    default:
      return reinterpret_cast<const float*>(m.scales)[i];
  }
}

// The scale of column c of row r; 1 for formats without.
__device__ inline float scale_of(const Matrix& m, std::int64_t r, std::int64_t c) {
  switch (m.format) {
    case quant::Format::kF32:
    case quant::Format::kBF16:
      return 1.0f;
    case quant::Format::kFp8Block128:
      return scale_value(m, r / 128 * ((m.cols + 127) / 128) + c / 128);
    case quant::Format::kFp8Block32:
      return scale_value(m, r / 32 * ((m.cols + 31) / 32) + c / 32);
    case quant::Format::kMxfp4:
    case quant::Format::kInt4G32:
      return scale_value(m, (r * m.cols + c) / 32);
    case quant::Format::kNvfp4:
      return scale_value(m, (r * m.cols + c) / 16);
    case quant::Format::kInt4G128:
      return scale_value(m, (r * m.cols + c) / 128);
  }
  return 1.0f;
}

// A 4-bit code as it is multiplied by its scale.
__device__ inline float nibble_value(const Matrix& m, std::uint32_t code) {
  return m.format == quant::Format::kMxfp4 || m.format == quant::Format::kNvfp4
             ? e2m1_value(code)
             : static_cast<float>(static_cast<int>(code) - 8);
}

// Release numerics round this matrix's inputs to FP8 (quant::FormatTraits::fp8_activations, which device code cannot read).
__device__ __host__ inline bool takes_fp8(quant::Format format) {
  return format == quant::Format::kFp8Block128 || format == quant::Format::kFp8Block32 ||
         format == quant::Format::kMxfp4;
}

// Columns c .. c + 7 of row r of a matrix in tiles (tiles.h); c is a multiple of 8.
__device__ inline void decode8_tiles(const Matrix& m, std::int64_t r, std::int64_t c,
                                     float (&out)[kDecodeWidth]) {
  const int width = block_cols(m.format), row = static_cast<int>(r % kBrickRows),
            column = static_cast<int>(c % width);
  const std::byte* brick =
      static_cast<const std::byte*>(m.data) + brick_offset(m.format, m.rows, m.cols, r, c / width);
  const BrickWords at = brick_words(m.format, row, column);
  const auto word = [&](int offset) {
    return __ldg(reinterpret_cast<const std::uint32_t*>(brick + offset));
  };
  if (m.format == quant::Format::kMxfp4) {
    const std::uint32_t codes = word(at.offset), row_word = word(1024 + 4 * row);
    const int n = static_cast<int>(row_word >> (column / 32 * 4) & 0xFu);
    const float scale = ldexpf(__uint_as_float(row_word & 0x7F800000u), n - kFp4Bias);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const std::uint32_t sign = codes >> (i < 4 ? 8 * i + 7 : 8 * (i - 4) + 3) & 1u;
      out[i] = e2m1_value((codes >> (4 * i) & 7u) | sign << 3) * scale;
    }
  } else if (m.format == quant::Format::kFp8Block128) {
    const float scale = __uint_as_float(word(kBrickRows * 128));
#pragma unroll
    for (int i = 0; i < 8; ++i)
      out[i] = e4m3_value(static_cast<std::uint8_t>(word(at.offset + i / 4 * at.stride) >>
                                                    (8 * (i % 4)))) *
               scale;
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const std::uint32_t pair = word(at.offset + i / 4 * 512 + i % 4 / 2 * at.stride);
      out[i] = __uint_as_float(i % 2 == 0 ? pair << 16 : pair & 0xFFFF0000u);
    }
  }
}

// Column c of row r as fp32.
__device__ inline float weight_at(const Matrix& m, std::int64_t r, std::int64_t c) {
  if (m.layout == Layout::kTiles) {
    float eight[kDecodeWidth];
    decode8_tiles(m, r, c / kDecodeWidth * kDecodeWidth, eight);
    float value = 0.0f;
#pragma unroll
    for (int i = 0; i < kDecodeWidth; ++i)
      if (i == c % kDecodeWidth) value = eight[i];
    return value;
  }
  const auto* codes = static_cast<const std::uint8_t*>(m.data);
  switch (m.format) {
    case quant::Format::kF32:
      return static_cast<const float*>(m.data)[r * m.cols + c];
    case quant::Format::kBF16:
      return quant::bf16_decode(static_cast<const std::uint16_t*>(m.data)[r * m.cols + c]);
    case quant::Format::kFp8Block128:
    case quant::Format::kFp8Block32:
      return e4m3_value(codes[r * m.cols + c]) * scale_of(m, r, c);
    case quant::Format::kMxfp4:
    case quant::Format::kNvfp4:
    case quant::Format::kInt4G32:
    case quant::Format::kInt4G128: {
      const std::uint32_t byte = codes[(r * m.cols + c) / 2];
      const float value = nibble_value(m, c % 2 == 0 ? byte & 0xFu : byte >> 4) * scale_of(m, r, c);
      return m.format == quant::Format::kNvfp4 ? value * m.global_scale : value;
    }
  }
  return 0.0f;
}

// Columns c .. c + 7 of row r, zeros past the last; c is a multiple of 8, so they share a scale. One wide load where the row
// allows it.
__device__ inline void decode8(const Matrix& m, std::int64_t r, std::int64_t c,
                               float (&out)[kDecodeWidth]) {
  if (m.layout == Layout::kTiles) return decode8_tiles(m, r, c, out);
  if (m.cols % kDecodeWidth != 0) {
#pragma unroll
    for (int i = 0; i < kDecodeWidth; ++i) out[i] = c + i < m.cols ? weight_at(m, r, c + i) : 0.0f;
    return;
  }
  const auto* codes = static_cast<const std::uint8_t*>(m.data);
  switch (m.format) {
    case quant::Format::kF32: {
      const auto* p =
          reinterpret_cast<const float4*>(static_cast<const float*>(m.data) + r * m.cols + c);
      const float4 a = __ldg(p), b = __ldg(p + 1);
      out[0] = a.x, out[1] = a.y, out[2] = a.z, out[3] = a.w, out[4] = b.x, out[5] = b.y,
      out[6] = b.z, out[7] = b.w;
      return;
    }
    case quant::Format::kBF16: {
      const uint4 v = __ldg(reinterpret_cast<const uint4*>(
          static_cast<const std::uint16_t*>(m.data) + r * m.cols + c));
      const std::uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        out[2 * i] = __uint_as_float(words[i] << 16);
        out[2 * i + 1] = __uint_as_float(words[i] & 0xFFFF0000u);
      }
      return;
    }
    case quant::Format::kFp8Block128:
    case quant::Format::kFp8Block32: {
      const uint2 v = __ldg(reinterpret_cast<const uint2*>(codes + r * m.cols + c));
      const float scale = scale_of(m, r, c);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        out[i] = e4m3_value(static_cast<std::uint8_t>(v.x >> (8 * i))) * scale;
        out[4 + i] = e4m3_value(static_cast<std::uint8_t>(v.y >> (8 * i))) * scale;
      }
      return;
    }
    case quant::Format::kMxfp4:
    case quant::Format::kNvfp4:
    case quant::Format::kInt4G32:
    case quant::Format::kInt4G128: {
      const std::uint32_t v =
          __ldg(reinterpret_cast<const std::uint32_t*>(codes + (r * m.cols + c) / 2));
      const float scale = scale_of(m, r, c);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        out[i] = nibble_value(m, (v >> (4 * i)) & 0xFu) * scale;
        if (m.format == quant::Format::kNvfp4) out[i] *= m.global_scale;
      }
      return;
    }
  }
}

// x[c .. c + 7], zeros past n; x is 16-byte aligned at c when n is a multiple of 8.
__device__ inline void load8(const float* x, std::int64_t c, std::int64_t n,
                             float (&out)[kDecodeWidth]) {
  if (n % kDecodeWidth != 0) {
#pragma unroll
    for (int i = 0; i < kDecodeWidth; ++i) out[i] = c + i < n ? x[c + i] : 0.0f;
    return;
  }
  const float4 a = *reinterpret_cast<const float4*>(x + c),
               b = *reinterpret_cast<const float4*>(x + c + 4);
  out[0] = a.x, out[1] = a.y, out[2] = a.z, out[3] = a.w, out[4] = b.x, out[5] = b.y, out[6] = b.z,
  out[7] = b.w;
}

// sum[t] = row r of m times x[t], one warp, all lanes get the result; x[t] is x + t * stride, t < kTokens and t < tokens. Lane l
// takes columns 256 j + 8 l + i with j, then i ascending; then the lanes are added pairwise. The order is a function of cols
// alone, so a token's sum does not depend on its company.
template <int kTokens>
__device__ inline void warp_dots(const Matrix& m, std::int64_t r, const float* x,
                                 std::int64_t stride, int tokens, float (&sum)[kTokens]) {
#pragma unroll
  for (int t = 0; t < kTokens; ++t) sum[t] = 0.0f;
  for (std::int64_t c = (threadIdx.x % kWarp) * kDecodeWidth; c < m.cols;
       c += kWarp * kDecodeWidth) {
    float w[kDecodeWidth];
    decode8(m, r, c, w);
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      if (t >= tokens) break;
      float v[kDecodeWidth];
      load8(x + t * stride, c, m.cols, v);
#pragma unroll
      for (int i = 0; i < kDecodeWidth; ++i) sum[t] = fmaf(w[i], v[i], sum[t]);
    }
  }
#pragma unroll
  for (int t = 0; t < kTokens; ++t) sum[t] = warp_sum(sum[t]);
}

}  // namespace nibble::ops::cuda
