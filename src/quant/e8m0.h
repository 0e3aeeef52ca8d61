// E8M0: a power of two in a byte, 2^(b - 127) for b = 0..254. No zero, no sign; 0xFF is NaN.
#pragma once

#include <bit>
#include <cstdint>

namespace nibble::quant {

inline constexpr std::uint8_t kE8M0One = 127;
inline constexpr std::uint8_t kE8M0Nan = 0xFF;

// Exact: b = 0 is the fp32 subnormal 2^-127, which a plain shift into the exponent field would turn
// into 0.
constexpr float e8m0_decode(std::uint8_t code) {
  if (code == kE8M0Nan) return std::bit_cast<float>(0x7FC00000u);
  return std::bit_cast<float>(code == 0 ? 0x00400000u : static_cast<std::uint32_t>(code) << 23);
}

// The smallest power of two >= value, read off the exponent and mantissa bits, so no logarithm
// rounds. value >= 0. 0 and everything up to 2^-127 give code 0; above 2^127 the code stays 254.
// NaN and infinity give kE8M0Nan.
constexpr std::uint8_t e8m0_ceil(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value) & 0x7FFFFFFFu;
  const std::uint32_t exponent = bits >> 23;
  const std::uint32_t mantissa = bits & 0x7FFFFFu;
  if (exponent == 255) return kE8M0Nan;
  if (exponent == 0) return mantissa > 0x400000u ? 1 : 0;
  const std::uint32_t code = exponent + (mantissa != 0 ? 1u : 0u);
  return static_cast<std::uint8_t>(code > 254u ? 254u : code);
}

// True when value is 2^(code - 127) exactly; `code` is then set.
constexpr bool e8m0_exact(float value, std::uint8_t& code) {
  code = e8m0_ceil(value);
  return code != kE8M0Nan && e8m0_decode(code) == value;
}

// 1 / 2^(code - 127), for code 0..254. Also a power of two: 2^127 for code 0 (exact), 2^-127 for
// code 254 (a subnormal).
constexpr float e8m0_reciprocal(std::uint8_t code) {
  return e8m0_decode(static_cast<std::uint8_t>(254 - code));
}

}  // namespace nibble::quant
