// IEEE half precision. A checkpoint saved in fp16 is read into fp32, which holds every half exactly;
// encoding (scales of INT4 groups) rounds to nearest even.
#pragma once

#include <bit>
#include <cstdint>

namespace nibble::quant {

constexpr float f16_decode(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
  const std::uint32_t exponent = (half >> 10) & 0x1Fu;
  const std::uint32_t mantissa = half & 0x3FFu;
  if (exponent == 0) {  // subnormal: mantissa x 2^-24, a normal fp32
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
  }
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000u | (mantissa << 13));
  return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
}

// Finite values that round beyond 65504 become infinite. A NaN stays one, quiet, with its sign.
constexpr std::uint16_t f16_encode(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<std::uint16_t>(sign | 0x7E00u);
  if (magnitude >= 0x477FF000u) return static_cast<std::uint16_t>(sign | 0x7C00u);  // >= 65520
  if (magnitude < 0x38800000u) {  // < 2^-14: a multiple of 2^-24
    // Adding 0.5 leaves 2^-24 as the last mantissa bit, so the addition itself rounds.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3F000000u));
  }
  const std::uint32_t half_minus_odd = 0xFFFu + ((magnitude >> 13) & 1u);
  const std::uint32_t rounded = (magnitude + half_minus_odd) >> 13;
  return static_cast<std::uint16_t>(sign | (rounded - (112u << 10)));
}

}  // namespace nibble::quant
