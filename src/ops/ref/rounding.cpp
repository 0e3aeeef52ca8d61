#include "ops/ref/rounding.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include "base/check.h"
#include "quant/bf16.h"
#include "quant/fp8_block.h"
#include "quant/mxfp4.h"

namespace nibble::ops::ref {
namespace {

constexpr float kFp8AmaxFloor = 1e-4f;  // deepseek-v4.md 6.2

std::uint8_t* bytes(std::byte* p) {
  return reinterpret_cast<std::uint8_t*>(p);
}

std::span<const float> floats(const float* x, std::int64_t n) {
  return {x, static_cast<std::size_t>(n)};
}

}  // namespace

float bf16_round(float x) {
  return quant::bf16_round(x);
}

void bf16_round(float* x, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) x[i] = quant::bf16_round(x[i]);
}

void fp8_round_blocks(float* x, std::int64_t n, std::int64_t block) {
  for (std::int64_t begin = 0; begin < n; begin += block) {
    const std::int64_t count = std::min(block, n - begin);
    std::uint8_t codes[quant::kFp8Block];
    NIBBLE_CHECK(count <= quant::kFp8Block, "block {}", block);
    const std::uint8_t scale = quant::fp8_encode_group(floats(x + begin, count), kFp8AmaxFloor,
                                                       {codes, static_cast<std::size_t>(count)});
    for (std::int64_t i = 0; i < count; ++i)
      x[begin + i] = quant::e4m3_decode(codes[i]) * quant::e8m0_decode(scale);
  }
}

void fp4_round_blocks(float* x, std::int64_t n) {
  static_assert(kFp4IndexBlock == quant::kMxfp4Group);
  std::vector<std::uint8_t> row(static_cast<std::size_t>(n / 2 + n / kFp4IndexBlock));
  const std::span codes(row.data(), static_cast<std::size_t>(n / 2));
  const std::span scales(row.data() + n / 2, static_cast<std::size_t>(n / kFp4IndexBlock));
  quant::mxfp4_encode_row(floats(x, n), codes, scales);
  quant::mxfp4_decode_row(codes, scales, {x, static_cast<std::size_t>(n)});
}

void hadamard(float* x, std::int64_t n) {
  NIBBLE_CHECK(n > 0 && (n & (n - 1)) == 0, "length {}", n);
  for (std::int64_t half = 1; half < n; half *= 2)
    for (std::int64_t i = 0; i < n; i += 2 * half)
      for (std::int64_t j = i; j < i + half; ++j) {
        const float a = x[j], b = x[j + half];
        x[j] = a + b;
        x[j + half] = a - b;
      }
  const float scale = 1.0f / std::sqrt(static_cast<float>(n));
  for (std::int64_t i = 0; i < n; ++i) x[i] *= scale;
}

void rms_norm_row(const float* x, const float* weight, std::int64_t n, float eps, float* y) {
  float square = 0.0f;
  for (std::int64_t i = 0; i < n; ++i) square += x[i] * x[i];
  const float s = 1.0f / std::sqrt(square / static_cast<float>(n) + eps);
  for (std::int64_t i = 0; i < n; ++i) y[i] = weight ? x[i] * s * weight[i] : x[i] * s;
}

void query_norm_row(float* x, std::int64_t n, float eps, bool release) {
  if (!release) {
    rms_norm_row(x, nullptr, n, eps, x);
    return;
  }
  float square = 0.0f;
  for (std::int64_t i = 0; i < n; ++i) square += bf16_round(x[i] * x[i]);
  const float mean = bf16_round(square / static_cast<float>(n));
  const float s = bf16_round(1.0f / std::sqrt(bf16_round(mean + eps)));
  for (std::int64_t i = 0; i < n; ++i) x[i] = bf16_round(x[i] * s);
}

void rope_row(float* x, std::int64_t n, std::int64_t position, const RopeTable& rope, float sign) {
  float* tail = x + n - 2 * rope.pairs;
  for (int i = 0; i < rope.pairs; ++i) {
    const float angle = static_cast<float>(position) * rope.inv_freq[i];
    const float c = std::cos(angle), s = sign * std::sin(angle);
    const float a = tail[2 * i], b = tail[2 * i + 1];
    tail[2 * i] = a * c - b * s;
    tail[2 * i + 1] = a * s + b * c;
  }
}

void store_row(RowFormat format, int width, const float* x, std::byte* out) {
  switch (format) {
    case RowFormat::kF32:
      std::memcpy(out, x, sizeof(float) * static_cast<std::size_t>(width));
      return;
    case RowFormat::kBf16:
      for (int i = 0; i < width; ++i) {
        const std::uint16_t bits = quant::bf16_encode(x[i]);
        std::memcpy(out + 2 * i, &bits, sizeof(bits));
      }
      return;
    case RowFormat::kFp8Nope: {
      const int nope = width - kRopeChannels;
      std::uint8_t* scales = bytes(out) + nope + 2 * kRopeChannels;
      for (int begin = 0; begin < nope; begin += kFp8RowBlock) {
        const int count = std::min(kFp8RowBlock, nope - begin);
        *scales++ = quant::fp8_encode_group(floats(x + begin, count), kFp8AmaxFloor,
                                            {bytes(out) + begin, static_cast<std::size_t>(count)});
      }
      *scales = 0;
      for (int i = 0; i < kRopeChannels; ++i) {
        const std::uint16_t bits = quant::bf16_encode(x[nope + i]);
        std::memcpy(out + nope + 2 * i, &bits, sizeof(bits));
      }
      return;
    }
    case RowFormat::kFp4Index: {
      std::vector<float> rotated(x, x + width);
      hadamard(rotated.data(), width);
      bf16_round(rotated.data(), width);
      quant::mxfp4_encode_row(
          rotated, {bytes(out), static_cast<std::size_t>(width / 2)},
          {bytes(out) + width / 2, static_cast<std::size_t>(width / kFp4IndexBlock)});
      return;
    }
  }
}

void load_row(RowFormat format, int width, const std::byte* in, float* x) {
  const std::uint8_t* codes = reinterpret_cast<const std::uint8_t*>(in);
  const auto bf16_at = [&](std::int64_t offset) {
    std::uint16_t bits;
    std::memcpy(&bits, in + offset, sizeof(bits));
    return quant::bf16_decode(bits);
  };
  switch (format) {
    case RowFormat::kF32:
      std::memcpy(x, in, sizeof(float) * static_cast<std::size_t>(width));
      return;
    case RowFormat::kBf16:
      for (int i = 0; i < width; ++i) x[i] = bf16_at(2L * i);
      return;
    case RowFormat::kFp8Nope: {
      const int nope = width - kRopeChannels;
      const std::uint8_t* scales = codes + nope + 2 * kRopeChannels;
      for (int i = 0; i < nope; ++i)
        x[i] = quant::e4m3_decode(codes[i]) * quant::e8m0_decode(scales[i / kFp8RowBlock]);
      for (int i = 0; i < kRopeChannels; ++i) x[nope + i] = bf16_at(nope + 2L * i);
      return;
    }
    case RowFormat::kFp4Index:
      quant::mxfp4_decode_row({codes, static_cast<std::size_t>(width / 2)},
                              {codes + width / 2, static_cast<std::size_t>(width / kFp4IndexBlock)},
                              {x, static_cast<std::size_t>(width)});
      return;
  }
}

void decode_matrix_row(const Matrix& m, std::int64_t r, float* out) {
  quant::decode_row(quant::MatrixView{m.format, m.rows, m.cols, m.scale_dtype, m.global_scale,
                                      static_cast<const std::byte*>(m.data), m.scales},
                    r, {out, static_cast<std::size_t>(m.cols)});
}

}  // namespace nibble::ops::ref
