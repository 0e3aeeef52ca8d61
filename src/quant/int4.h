// INT4 weights with a scale per group of columns (W4A16), as compressed-tensors calls
// `pack-quantized`, symmetric.
//
//   weight[r][c] = (code[r][c] - 8) * scale[r][c / group]
//
// Codes are 0..15 for -8..7. The file's int32 words hold eight of them, column 8w + i at bits 4i ..
// 4i + 3; little endian, that is byte j of a row with column 2j in its LOW nibble, as in MXFP4.
// Scales are a matrix of their own, [rows, cols/group], in BF16, F16 or F32, kept as they are.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>

namespace nibble::quant {

inline constexpr int kInt4Zero = 8;  // the code of 0

// The codes of one int32 word.
struct Int4Word {
  std::uint8_t bytes[4];

  int value(std::int64_t column) const {  // 0..7; the result is -8..7
    const std::uint8_t byte = bytes[column / 2];
    return static_cast<int>(column % 2 == 0 ? byte & 0xFu : byte >> 4) - kInt4Zero;
  }
};
static_assert(sizeof(Int4Word) == 4);

constexpr float int4_decode(std::uint8_t code) {  // the low four bits count
  return static_cast<float>(static_cast<int>(code & 0xFu) - kInt4Zero);
}

// value / scale to nearest even, saturating at -8 and 7.
inline std::uint8_t int4_encode(float value, float scale) {
  const float q = std::nearbyint(value / scale);
  const float clamped = q < -8.0f ? -8.0f : q > 7.0f ? 7.0f : q;
  return static_cast<std::uint8_t>(static_cast<int>(clamped) + kInt4Zero);
}

// compressed-tensors' symmetric rule, amax / 7.5 (half the range of 4 bits), before it is rounded to
// the type that holds it. A positive peak loses half a step. A group of zeros gets 1.
constexpr float int4_scale(float amax) {
  return amax == 0.0f ? 1.0f : amax / 7.5f;
}

}  // namespace nibble::quant
