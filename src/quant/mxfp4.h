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

// How a quantiser picks a group's exponent; decoding is the same for all.
//   kCeil     2^ceil(log2(amax / 6)): nothing saturates. DeepSeek's reference cast, ModelOpt.
//   kFloor    2^(floor(log2 amax) - 2): amax between 6 and 8 times it saturates. OCP's text, ggml.
//   kRounded  amax's mantissa to a power of two (1.75 and more go up), then - 2: 7 times it and more
//             goes up, so only amax between 6 and 7 saturates. compressed-tensors.
enum class Mxfp4Rule { kCeil, kFloor, kRounded };

// kCeil: amax is floored at 6 * 2^-126, so the byte is at least 1. As with fp8_scale, multiplying by
// fp32(1/6) and dividing by 6 agree for every fp32 amax. The others: byte 0 for every amax below
// 2^-125. kE8M0Nan for an infinity or NaN.
constexpr std::uint8_t mxfp4_scale(float amax, Mxfp4Rule rule = Mxfp4Rule::kCeil) {
  constexpr float kFloor = 6.0f * 0x1p-126f;
  if (rule == Mxfp4Rule::kCeil)
    return e8m0_ceil((amax < kFloor ? kFloor : amax) * (1.0f / kE2M1Max));
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(amax);
  const std::uint32_t exponent = bits >> 23;
  if (exponent >= 255) return kE8M0Nan;
  const std::uint32_t up = rule == Mxfp4Rule::kRounded && (bits & 0x7FFFFFu) >= 0x600000u ? 1 : 0;
  return static_cast<std::uint8_t>(exponent + up <= 2 ? 0 : exponent + up - 2);
}

// out[cols] = one row of cols/2 bytes and cols/32 scales; cols a multiple of 32.
void mxfp4_decode_row(std::span<const std::uint8_t> bytes, std::span<const std::uint8_t> scales,
                      std::span<float> out);

// Quantises a row (cols a multiple of 32, values finite): bytes [cols/2], scales [cols/32]. Codes
// round to nearest even, saturating at +-6.
void mxfp4_encode_row(std::span<const float> values, std::span<std::uint8_t> bytes,
                      std::span<std::uint8_t> scales, Mxfp4Rule rule = Mxfp4Rule::kCeil);

}  // namespace nibble::quant
