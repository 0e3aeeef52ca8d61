// bfloat16: the upper half of an fp32. Decoding is exact; encoding rounds to nearest even.
#pragma once

#include <bit>
#include <cstdint>

namespace nibble::quant {

constexpr float bf16_decode(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

// Finite values beyond the largest bf16 become infinite, as in IEEE rounding. A NaN stays a NaN:
// its sign and upper payload are kept and the quiet bit is set, since rounding could otherwise
// carry it into infinity or zero.
constexpr std::uint16_t bf16_encode(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x0040u);
  const std::uint32_t half_minus_odd = 0x7FFFu + ((bits >> 16) & 1u);
  return static_cast<std::uint16_t>((bits + half_minus_odd) >> 16);
}

constexpr float bf16_round(float value) {
  return bf16_decode(bf16_encode(value));
}

}  // namespace nibble::quant
