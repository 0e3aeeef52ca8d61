// E2M1 (FP4): sign, 2 exponent bits with bias 1, 1 mantissa bit. Magnitudes 0 .5 1 1.5 2 3 4 6;
// code 8 is -0. No NaN, no infinity.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace nibble::quant {

inline constexpr float kE2M1Max = 6.0f;

inline constexpr std::array<float, 16> kE2M1Values = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,
                                                      4.0f,  6.0f,  -0.0f, -0.5f, -1.0f, -1.5f,
                                                      -2.0f, -3.0f, -4.0f, -6.0f};

// The low four bits count.
constexpr float e2m1_decode(std::uint8_t code) {
  return kE2M1Values[code & 0xFu];
}

// Round to nearest, ties to the even code, saturating at +-6 (infinities too). Zeros keep their
// sign. There is no NaN code: a NaN becomes 6 with its sign, so check for NaN before.
constexpr std::uint8_t e2m1_encode(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 28) & 0x8u;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  // Bits of non-negative floats order as the floats do. Each midpoint passed is one code further;
  // >= where the tie goes up.
  const auto at = [](float midpoint) { return std::bit_cast<std::uint32_t>(midpoint); };
  const std::uint32_t code = (magnitude > at(0.25f) ? 1u : 0u) +
                             (magnitude >= at(0.75f) ? 1u : 0u) +
                             (magnitude > at(1.25f) ? 1u : 0u) +
                             (magnitude >= at(1.75f) ? 1u : 0u) + (magnitude > at(2.5f) ? 1u : 0u) +
                             (magnitude >= at(3.5f) ? 1u : 0u) + (magnitude > at(5.0f) ? 1u : 0u);
  return static_cast<std::uint8_t>(sign | code);
}

}  // namespace nibble::quant
