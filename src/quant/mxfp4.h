// MXFP4: E2M1 codes, one E8M0 scale per 32 consecutive columns of a row.
//
//   weight[r][c] = e2m1(code[r][c]) * 2^(scale[r][c / 32] - 127)
//
// Byte j of a row holds column 2j in its LOW nibble and column 2j + 1 in its HIGH nibble
// (safetensors order; GGUF differs). Scales are a matrix of their own, [rows, cols/32]. Decoded
// values are exact in fp32 for scale bytes 0..252.
#pragma once

#include <cstdint>
#include <span>

#include "quant/e2m1.h"
#include "quant/e8m0.h"

namespace nibble::quant {

inline constexpr std::int64_t kMxfp4Group = 32;

// The codes that share a scale, as they lie in a row.
struct Mxfp4Group {
  std::uint8_t bytes[kMxfp4Group / 2];

  std::uint8_t code(std::int64_t column) const {  // 0..31
    const std::uint8_t byte = bytes[column / 2];
    return static_cast<std::uint8_t>(column % 2 == 0 ? byte & 0xFu : byte >> 4);
  }
};
static_assert(sizeof(Mxfp4Group) == 16);

// Largest scale byte whose group cannot leave fp32's range: 6 * 2^125 is finite, 6 * 2^126 is not.
inline constexpr std::uint8_t kMxfp4MaxFiniteScale = 252;

// 2^ceil(log2(amax / 6)), DeepSeek's rule: nothing saturates. amax is floored at 6 * 2^-126, so the
// byte is at least 1. As with fp8_scale, multiplying by fp32(1/6) and dividing by 6 agree for every
// fp32 amax.
constexpr std::uint8_t mxfp4_scale(float amax) {
  constexpr float kFloor = 6.0f * 0x1p-126f;
  return e8m0_ceil((amax < kFloor ? kFloor : amax) * (1.0f / kE2M1Max));
}

// out[cols] = one row of cols/2 bytes and cols/32 scales; cols a multiple of 32.
void mxfp4_decode_row(std::span<const std::uint8_t> bytes, std::span<const std::uint8_t> scales,
                      std::span<float> out);

// Quantises a row (cols a multiple of 32, values finite): bytes [cols/2], scales [cols/32]. Codes
// round to nearest even.
void mxfp4_encode_row(std::span<const float> values, std::span<std::uint8_t> bytes,
                      std::span<std::uint8_t> scales);

}  // namespace nibble::quant
