// Every code, every tie and every edge of the element types, against arithmetic done in double.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "quant/bf16.h"
#include "quant/e2m1.h"
#include "quant/e4m3.h"
#include "quant/e8m0.h"
#include "quant/f16.h"

namespace nibble::quant {
namespace {

std::uint32_t bits_of(float value) {
  return std::bit_cast<std::uint32_t>(value);
}

// sign, exponent and mantissa fields to a double, for a format without infinities.
double field_value(unsigned sign, int exponent, unsigned mantissa, int bias, int mantissa_bits) {
  const double fraction = static_cast<double>(mantissa) / (1 << mantissa_bits);
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1.0 + fraction, exponent - bias);
  return sign ? -magnitude : magnitude;
}

TEST(E4M3, DecodesEveryCode) {
  for (unsigned code = 0; code < 256; ++code) {
    const float value = e4m3_decode(static_cast<std::uint8_t>(code));
    if ((code & 0x7F) == 0x7F) {
      EXPECT_TRUE(std::isnan(value)) << code;
      EXPECT_TRUE(e4m3_is_nan(static_cast<std::uint8_t>(code)));
      continue;
    }
    EXPECT_FALSE(e4m3_is_nan(static_cast<std::uint8_t>(code)));
    EXPECT_EQ(value, field_value(code >> 7, (code >> 3) & 15, code & 7, 7, 3)) << code;
    EXPECT_EQ(std::signbit(value), code >= 128) << code;
  }
  EXPECT_EQ(e4m3_decode(0x7E), 448.0f);
  EXPECT_EQ(e4m3_decode(0x01), 0x1p-9f);
  EXPECT_EQ(e4m3_decode(0x08), 0x1p-6f);
}

TEST(E4M3, EncodesEveryCodeToItself) {
  for (unsigned code = 0; code < 256; ++code) {
    const auto byte = static_cast<std::uint8_t>(code);
    EXPECT_EQ(e4m3_encode(e4m3_decode(byte)), byte);
  }
}

TEST(E4M3, RoundsToNearestEvenBetweenEveryPairOfCodes) {
  for (unsigned code = 0; code < 0x7E; ++code) {
    const float low = e4m3_decode(static_cast<std::uint8_t>(code));
    const float high = e4m3_decode(static_cast<std::uint8_t>(code + 1));
    const float middle = (low + high) / 2;  // exact: 4 more bits are plenty
    const unsigned even = code % 2 == 0 ? code : code + 1;
    for (const unsigned sign : {0u, 0x80u}) {
      const float s = sign ? -1.0f : 1.0f;
      EXPECT_EQ(e4m3_encode(s * middle), sign | even) << code;
      EXPECT_EQ(e4m3_encode(s * std::nextafter(middle, 0.0f)), sign | code) << code;
      EXPECT_EQ(e4m3_encode(s * std::nextafter(middle, 1e9f)), sign | (code + 1)) << code;
    }
  }
}

TEST(E4M3, Saturates) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const float big :
       {448.0f, 449.0f, 464.0f, 465.0f, 1e6f, std::numeric_limits<float>::max(), kInf}) {
    EXPECT_EQ(e4m3_encode(big), 0x7E) << big;
    EXPECT_EQ(e4m3_encode(-big), 0xFE) << big;
  }
  EXPECT_EQ(e4m3_encode(std::bit_cast<float>(0x7FC00000u)), 0x7F);
  EXPECT_EQ(e4m3_encode(std::bit_cast<float>(0xFF800001u)), 0xFF);  // a signalling NaN, negative
  EXPECT_EQ(e4m3_encode(0.0f), 0x00);
  EXPECT_EQ(e4m3_encode(-0.0f), 0x80);
  EXPECT_EQ(e4m3_encode(std::numeric_limits<float>::denorm_min()), 0x00);
  EXPECT_EQ(e4m3_encode(-1e-30f), 0x80);
}

TEST(E8M0, DecodesEveryCode) {
  for (int code = 0; code < 255; ++code) {
    EXPECT_EQ(e8m0_decode(static_cast<std::uint8_t>(code)), std::ldexp(1.0, code - 127)) << code;
    EXPECT_EQ(e8m0_reciprocal(static_cast<std::uint8_t>(code)), std::ldexp(1.0, 127 - code))
        << code;
  }
  EXPECT_TRUE(std::isnan(e8m0_decode(255)));
  EXPECT_GT(e8m0_decode(0), 0.0f);
}

TEST(E8M0, CeilIsTheSmallestPowerNotBelow) {
  for (int code = 0; code < 255; ++code) {
    const auto byte = static_cast<std::uint8_t>(code);
    const float power = e8m0_decode(byte);
    EXPECT_EQ(e8m0_ceil(power), byte);
    const float above = std::nextafter(power, std::numeric_limits<float>::max());
    EXPECT_EQ(e8m0_ceil(above), code == 254 ? 254 : code + 1) << code;
    EXPECT_EQ(e8m0_ceil(std::nextafter(power, 0.0f)), byte)
        << code;  // still above the next lower power
    std::uint8_t exact = 0;
    EXPECT_TRUE(e8m0_exact(power, exact));
    EXPECT_EQ(exact, byte);
    EXPECT_FALSE(e8m0_exact(above, exact));
  }
  std::uint8_t code = 0;
  EXPECT_EQ(e8m0_ceil(0.0f), 0);
  EXPECT_FALSE(e8m0_exact(0.0f, code));
  EXPECT_FALSE(e8m0_exact(-2.0f, code));
  EXPECT_EQ(e8m0_ceil(std::numeric_limits<float>::infinity()), kE8M0Nan);
  EXPECT_EQ(e8m0_ceil(std::numeric_limits<float>::quiet_NaN()), kE8M0Nan);
}

TEST(E2M1, EveryCodeAndEveryTie) {
  for (unsigned code = 0; code < 16; ++code) {
    const auto byte = static_cast<std::uint8_t>(code);
    EXPECT_EQ(e2m1_decode(byte), field_value(code >> 3, (code >> 1) & 3, code & 1, 1, 1)) << code;
    EXPECT_EQ(std::signbit(e2m1_decode(byte)), code >= 8);
    EXPECT_EQ(e2m1_encode(e2m1_decode(byte)), byte);
  }
  struct Tie {
    float midpoint;
    float winner;
  };
  for (const Tie tie : {Tie{0.25f, 0}, Tie{0.75f, 1}, Tie{1.25f, 1}, Tie{1.75f, 2}, Tie{2.5f, 2},
                        Tie{3.5f, 4}, Tie{5, 4}}) {
    EXPECT_EQ(e2m1_decode(e2m1_encode(tie.midpoint)), tie.winner) << tie.midpoint;
    EXPECT_EQ(e2m1_decode(e2m1_encode(-tie.midpoint)), -tie.winner) << tie.midpoint;
    EXPECT_LT(e2m1_decode(e2m1_encode(std::nextafter(tie.midpoint, 0.0f))), tie.midpoint);
    EXPECT_GT(e2m1_decode(e2m1_encode(std::nextafter(tie.midpoint, 9.0f))), tie.midpoint);
  }
  EXPECT_EQ(e2m1_encode(6.01f), 7);
  EXPECT_EQ(e2m1_encode(-std::numeric_limits<float>::infinity()), 15);
}

TEST(BF16, EveryCodeSurvivesARoundTrip) {
  for (unsigned code = 0; code < 65536; ++code) {
    const auto half = static_cast<std::uint16_t>(code);
    const float value = bf16_decode(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(bf16_decode(bf16_encode(value))));
      EXPECT_EQ(bf16_encode(value) & 0x8000, half & 0x8000);
    } else {
      EXPECT_EQ(bf16_encode(value), half);
    }
  }
}

TEST(BF16, RoundsToNearestEvenBetweenEveryPairOfCodes) {
  for (unsigned code = 0; code < 0x7F80; ++code) {
    const std::uint32_t low = code << 16;
    const unsigned even = code % 2 == 0 ? code : code + 1;
    EXPECT_EQ(bf16_encode(std::bit_cast<float>(low | 0x7FFFu)), code);
    EXPECT_EQ(bf16_encode(std::bit_cast<float>(low | 0x8000u)), even);  // 0x7F80: infinity
    EXPECT_EQ(bf16_encode(std::bit_cast<float>(low | 0x8001u)), code + 1);
    EXPECT_EQ(bf16_encode(std::bit_cast<float>(0x80000000u | low | 0x8000u)), 0x8000u | even);
  }
  EXPECT_TRUE(
      std::isnan(bf16_round(std::bit_cast<float>(0x7F800001u))));  // payload only in the lower half
  EXPECT_TRUE(std::isnan(bf16_round(std::bit_cast<float>(0xFFFFFFFFu))));
}

TEST(F16, RoundsToNearestEvenBetweenEveryPairOfCodes) {
  for (unsigned code = 0; code < 0x7C00; ++code) {
    const float low = f16_decode(static_cast<std::uint16_t>(code));
    EXPECT_EQ(f16_encode(low), code);
    EXPECT_EQ(f16_encode(-low), 0x8000u | code);
    // Past the largest one the next step would be 65536: IEEE rounds to infinity from halfway on.
    const float high = code == 0x7BFF ? 65536.0f : f16_decode(static_cast<std::uint16_t>(code + 1));
    const float middle = (low + high) / 2;
    EXPECT_EQ(f16_encode(middle), code % 2 == 0 ? code : code + 1) << code;
    EXPECT_EQ(f16_encode(std::nextafter(middle, 0.0f)), code) << code;
    EXPECT_EQ(f16_encode(std::nextafter(middle, 1e9f)), code + 1) << code;
  }
  EXPECT_EQ(f16_encode(std::numeric_limits<float>::infinity()), 0x7C00);
  EXPECT_EQ(f16_encode(std::numeric_limits<float>::quiet_NaN()), 0x7E00);
  EXPECT_EQ(f16_encode(1e-30f), 0);
}

TEST(F16, DecodesEveryCode) {
  for (unsigned code = 0; code < 65536; ++code) {
    const auto half = static_cast<std::uint16_t>(code);
    const float value = f16_decode(half);
    const unsigned exponent = (code >> 10) & 31;
    const unsigned mantissa = code & 1023;
    if (exponent == 31) {
      EXPECT_EQ(std::isnan(value), mantissa != 0);
      EXPECT_EQ(std::isinf(value), mantissa == 0);
    } else {
      EXPECT_EQ(value, field_value(code >> 15, static_cast<int>(exponent), mantissa, 15, 10))
          << code;
    }
    EXPECT_EQ(bits_of(value) >> 31, code >> 15);
  }
}

}  // namespace
}  // namespace nibble::quant
