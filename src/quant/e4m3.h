// E4M3 (the "fn" kind): sign, 4 exponent bits with bias 7, 3 mantissa bits. Largest 448 (0x7E),
// smallest normal 2^-6, smallest subnormal 2^-9, no infinity; 0x7F and 0xFF are NaN.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <limits>

namespace nibble::quant {

inline constexpr float kE4M3Max = 448.0f;
inline constexpr std::uint8_t kE4M3Nan = 0x7F;  // or 0xFF

constexpr bool e4m3_is_nan(std::uint8_t code) {
  return (code & 0x7Fu) == kE4M3Nan;
}

namespace internal {

constexpr float e4m3_decode_bits(std::uint8_t code) {
  const std::uint32_t sign = static_cast<std::uint32_t>(code & 0x80u) << 24;
  const std::uint32_t exponent = (code >> 3) & 0xFu;
  const std::uint32_t mantissa = code & 0x7u;
  if (e4m3_is_nan(code)) return std::bit_cast<float>(sign | 0x7FC00000u);
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-9f;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
  }
  return std::bit_cast<float>(sign | ((exponent + 120u) << 23) | (mantissa << 20));
}

constexpr std::array<float, 256> make_e4m3_table() {
  std::array<float, 256> table{};
  for (unsigned code = 0; code < 256; ++code) {
    table[code] = e4m3_decode_bits(static_cast<std::uint8_t>(code));
  }
  return table;
}

}  // namespace internal

inline constexpr std::array<float, 256> kE4M3Values = internal::make_e4m3_table();

// Exact; a quiet NaN of the code's sign for 0x7F and 0xFF.
inline float e4m3_decode(std::uint8_t code) {
  return kE4M3Values[code];
}

// Round to nearest, ties to even, saturating: everything of magnitude above 448, infinities
// included, becomes +-448. NaN becomes the NaN code of its sign. Zeros keep their sign.
constexpr std::uint8_t e4m3_encode(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 24) & 0x80u;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<std::uint8_t>(sign | kE4M3Nan);
  if (magnitude >= 0x43E00000u) return static_cast<std::uint8_t>(sign | 0x7Eu);  // >= 448
  if (magnitude < 0x3C800000u) {  // < 2^-6: a multiple of 2^-9, up to the smallest normal
    // Adding 2^14 leaves 2^-9 as the last mantissa bit, so the addition itself rounds to nearest
    // even.
    const float shifted = std::bit_cast<float>(magnitude) + 0x1p14f;
    const std::uint32_t code = std::bit_cast<std::uint32_t>(shifted) - 0x46800000u;
    return static_cast<std::uint8_t>(sign | code);
  }
  const std::uint32_t half_minus_odd = 0x7FFFFu + ((magnitude >> 20) & 1u);
  const std::uint32_t rounded =
      (magnitude + half_minus_odd) >> 20;  // a carry into the exponent is the right answer
  return static_cast<std::uint8_t>(sign | (rounded - (120u << 3)));
}

}  // namespace nibble::quant
