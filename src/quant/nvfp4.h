// NVFP4: E2M1 codes, one E4M3 scale per 16 consecutive columns of a row, one fp32 scale a matrix.
//
//   weight[r][c] = e2m1(code[r][c]) * e4m3(scale[r][c / 16]) * global
//
// Bytes as in MXFP4: byte j of a row holds column 2j in its LOW nibble. Scales are a matrix of their
// own, [rows, cols/16], never negative and never NaN. `global` is a multiplier everywhere in
// memory; files of compressed-tensors hold its reciprocal (nvfp4_from_reciprocal).
//
// e2m1 * e4m3 has at most 6 significant bits, so the product with `global` is rounded once, to fp32.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>

#include "quant/e2m1.h"
#include "quant/e4m3.h"

namespace nibble::quant {

inline constexpr std::int64_t kNvfp4Group = 16;

// The codes that share a scale, as they lie in a row.
struct Nvfp4Group {
  std::uint8_t bytes[kNvfp4Group / 2];

  std::uint8_t code(std::int64_t column) const {  // 0..15
    const std::uint8_t byte = bytes[column / 2];
    return static_cast<std::uint8_t>(column % 2 == 0 ? byte & 0xFu : byte >> 4);
  }
};
static_assert(sizeof(Nvfp4Group) == 8);

inline constexpr float kNvfp4BlockMax = kE2M1Max * kE4M3Max;  // 2688, the largest e2m1 * e4m3
inline constexpr float kNvfp4MaxFiniteGlobal =
    std::numeric_limits<float>::max() / kNvfp4BlockMax;  // no weight leaves fp32's range up to here

// ModelOpt's rule: amax(matrix) / (6 * 448), amax over every matrix that shares the scale (W1 and
// W3 of an expert do). A matrix of zeros gets 1.
constexpr float nvfp4_global_scale(float amax) {
  return amax == 0.0f ? 1.0f : amax / kNvfp4BlockMax;
}

// What compressed-tensors stores, 1 / global, brought to the multiplier: one fp32 division, rounded
// to nearest even. Exact for powers of two.
constexpr float nvfp4_from_reciprocal(float stored) {
  return 1.0f / stored;
}

// ModelOpt's rule: amax(block) / (6 * global), clamped to [2^-9, 448], then to nearest even. A block
// of zeros gets 1. The divisions are fp32.
constexpr std::uint8_t nvfp4_scale(float amax, float global) {
  if (amax == 0.0f) return e4m3_encode(1.0f);
  return e4m3_encode(std::clamp(amax / (kE2M1Max * global), 0x1p-9f, kE4M3Max));
}

// out[cols] = one row of cols/2 bytes and cols/16 scales; cols a multiple of 16.
void nvfp4_decode_row(std::span<const std::uint8_t> bytes, std::span<const std::uint8_t> scales,
                      float global, std::span<float> out);

// Quantises a row (cols a multiple of 16, values finite) for a given global scale: codes are
// value / (scale * global) to nearest even, saturating at +-6 where the scale was rounded down.
void nvfp4_encode_row(std::span<const float> values, float global, std::span<std::uint8_t> bytes,
                      std::span<std::uint8_t> scales);

}  // namespace nibble::quant
