// Every pair of formats: what the bits of the result mean, and where it is exact. Expected values come
// from the definitions, in double, not from the encoders under test.
#include "convert/encode.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "convert/conversion_error.h"
#include "nibble/status.h"
#include "quant/mxfp4.h"

namespace nibble::convert {
namespace {

using quant::Format;
using quant::HostMatrix;
using tensor::DType;

constexpr double kMagnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};

// Codes and scale bytes of an MXFP4 matrix, as functions of their place.
HostMatrix mxfp4(std::int64_t rows, std::int64_t cols,
                 const std::function<int(std::int64_t, std::int64_t)>& code,
                 const std::function<int(std::int64_t, std::int64_t)>& scale) {
  HostMatrix m = quant::make_host_matrix(Format::kMxfp4, rows, cols);
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < cols; c += 2)
      m.data.as<std::uint8_t>()[(r * cols + c) / 2] =
          static_cast<std::uint8_t>(code(r, c) | (code(r, c + 1) << 4));
    for (std::int64_t g = 0; g < cols / 32; ++g)
      m.scales.as<std::uint8_t>()[r * (cols / 32) + g] = static_cast<std::uint8_t>(scale(r, g));
  }
  return m;
}

double mxfp4_value(int code, int scale) {
  return (code & 8 ? -1 : 1) * std::ldexp(kMagnitudes[code & 7], scale - 127);
}

HostMatrix only(Target target, const HostMatrix& source, EncodeStats* stats = nullptr) {
  const HostMatrix* const sources[] = {&source};
  const std::string names[] = {"w"};
  Encoded encoded = encode(target, sources, names);
  EXPECT_EQ(encoded.matrices.size(), 1u);
  if (stats != nullptr) *stats = encoded.stats;
  return std::move(encoded.matrices[0]);
}

Encoded pair(const HostMatrix& a, const HostMatrix& b) {
  const HostMatrix* const sources[] = {&a, &b};
  const std::string names[] = {"gate", "up"};
  return encode(Target::kNvfp4, sources, names);
}

float value(const HostMatrix& m, std::int64_t r, std::int64_t c) {
  std::vector<float> row(static_cast<std::size_t>(m.cols));
  decode_row(m, r, row);
  return row[static_cast<std::size_t>(c)];
}

std::string bytes(const quant::AlignedBytes& b) {
  return {b.as<char>(), b.size()};
}

// All 16 codes in the first row of each block, exponents from -span to 0 below the top.
HostMatrix spanning(int span, int top = 127) {
  return mxfp4(
      128, 128, [](auto r, auto c) { return static_cast<int>((r + c) % 16); },
      [=](auto r, auto g) { return top - static_cast<int>((r * 4 + g) % (span + 1)); });
}

TEST(Encode, Mxfp4ToNvfp4MovesCodesUpToASpanOf17) {
  for (const int span : {0, 6, 11, 14, 17}) {
    const HostMatrix a = spanning(span), b = spanning(0, 120);
    const Encoded made = pair(a, b);
    EXPECT_EQ(made.stats.span, std::max(span, 7)) << span;
    EXPECT_EQ(made.stats.requantised_blocks, 0) << span;
    EXPECT_EQ(made.stats.moved_blocks, 2 * 128 * 8) << span;
    EXPECT_EQ(made.matrices[0].global_scale, 0x1p-8f);
    EXPECT_EQ(made.matrices[1].global_scale, 0x1p-8f);  // shared, though its own maximum is lower
    EXPECT_EQ(bytes(made.matrices[0].data), bytes(a.data));
    EXPECT_EQ(bytes(made.matrices[1].data), bytes(b.data));
    EXPECT_TRUE(compare(a, made.matrices[0]).exact());
    EXPECT_TRUE(compare(b, made.matrices[1]).exact());
  }
}

TEST(Encode, Mxfp4ToNvfp4CountsWhatASpanOf18Loses) {
  const HostMatrix a = spanning(18);
  EncodeStats stats;
  const HostMatrix made = only(Target::kNvfp4, a, &stats);
  std::int64_t below = 0;
  for (std::size_t i = 0; i < a.scales.size(); ++i)
    below += a.scales.as<std::uint8_t>()[i] == 127 - 18 ? 1 : 0;
  EXPECT_EQ(stats.span, 18);
  EXPECT_EQ(stats.requantised_blocks, 2 * below);
  const MatrixError error = compare(a, made);
  EXPECT_EQ(error.blocks, 128 * 8);
  EXPECT_EQ(error.inexact_blocks, 2 * below);  // each holds a 0.5, which halves to 0.25
  EXPECT_EQ(error.worst, std::ldexp(0.25, -17)) << "half a step of the smallest scale";
}

TEST(Encode, Mxfp4ThereAndBack) {
  std::mt19937 random(5);
  const HostMatrix a = mxfp4(
      64, 256, [&](auto, auto) { return static_cast<int>(random() % 16); },
      [&](auto, auto) { return 110 + static_cast<int>(random() % 12); });
  const HostMatrix nvfp4 = only(Target::kNvfp4, a);
  EncodeStats stats;
  const HostMatrix back = only(Target::kMxfp4, nvfp4, &stats);
  EXPECT_EQ(bytes(back.data), bytes(a.data));
  EXPECT_EQ(bytes(back.scales), bytes(a.scales));
  EXPECT_EQ(stats.requantised_blocks, 0);
  EXPECT_EQ(stats.moved_blocks, 64 * 8);
  for (const Target through : {Target::kFp8, Target::kBf16}) {
    const HostMatrix again = only(Target::kMxfp4, only(through, a));
    EXPECT_TRUE(compare(a, again).exact()) << target_name(through);
  }
}

TEST(Encode, Nvfp4ToMxfp4RequantisesWhatIsNoPowerOfTwo) {
  HostMatrix a = mxfp4(
      1, 64, [](auto, auto c) { return static_cast<int>(c % 8); }, [](auto, auto) { return 127; });
  HostMatrix nvfp4 = only(Target::kNvfp4, a);
  nvfp4.scales.as<std::uint8_t>()[1] = 0x40;  // the second half of the first group: half as large
  EncodeStats stats;
  HostMatrix back = only(Target::kMxfp4, nvfp4, &stats);
  EXPECT_EQ(stats.requantised_blocks, 1);
  EXPECT_EQ(stats.moved_blocks, 1);
  EXPECT_FALSE(compare(nvfp4, back).exact());
  EXPECT_EQ(compare(nvfp4, back).inexact_blocks, 1);
  nvfp4.scales.as<std::uint8_t>()[1] = nvfp4.scales.as<std::uint8_t>()[0];
  nvfp4.global_scale *= 3.0f;
  back = only(Target::kMxfp4, nvfp4, &stats);
  EXPECT_EQ(stats.requantised_blocks, 2);
  EXPECT_FALSE(compare(nvfp4, back).exact());
}

TEST(Encode, Nvfp4ToMxfp4IgnoresTheScaleOfAHalfOfZeros) {
  const HostMatrix a = mxfp4(
      1, 32, [](auto, auto c) { return c < 16 ? static_cast<int>(c % 16) : (c % 2 ? 8 : 0); },
      [](auto, auto) { return 121; });
  HostMatrix nvfp4 = only(Target::kNvfp4, a);
  nvfp4.scales.as<std::uint8_t>()[1] = 0x33;
  const HostMatrix back = only(Target::kMxfp4, nvfp4);
  EXPECT_EQ(bytes(back.data), bytes(a.data));  // -0 too
  EXPECT_EQ(bytes(back.scales), bytes(a.scales));
}

// quantization.md 3.3: a block whose exponents span at most 14 is exact, and no more.
TEST(Encode, Mxfp4ToFp8IsExactUpToASpanOf14) {
  for (const int span : {0, 6, 11, 14, 15}) {
    const HostMatrix a = spanning(span);
    const HostMatrix made = only(Target::kFp8, a);
    EXPECT_EQ(made.scale_dtype, DType::kF32);
    const MatrixError error = compare(a, made);
    EXPECT_EQ(error.exact(), span <= 14) << span;
    EXPECT_EQ(error.blocks, 1);
    const float scale = made.scales.as<float>()[0];
    EXPECT_EQ(scale, 0x1p-6f);  // the power of two with which 6 is 384
    EXPECT_EQ(error.worst, span <= 14 ? 0.0 : std::ldexp(0.5, -15)) << "0.5 * 2^-15 becomes 0";
  }
}

TEST(Encode, Mxfp4ToBf16IsExactForEveryByteThatLoads) {
  for (int scale = 0; scale <= quant::kMxfp4MaxFiniteScale; ++scale) {
    const HostMatrix a = mxfp4(
        1, 32, [](auto, auto c) { return static_cast<int>(c % 16); },
        [=](auto, auto) { return scale; });
    const HostMatrix made = only(Target::kBf16, a);
    EXPECT_TRUE(compare(a, made).exact()) << scale;
    for (int code = 0; code < 16; ++code)
      ASSERT_EQ(value(made, 0, code), mxfp4_value(code, scale)) << scale << " " << code;
  }
}

TEST(Encode, EveryNvfp4ProductIsExactInBf16) {
  for (int scale = 0; scale < 127; ++scale) {
    HostMatrix a = quant::make_host_matrix(Format::kNvfp4, 1, 16);
    for (int j = 0; j < 8; ++j)
      a.data.as<std::uint8_t>()[j] = static_cast<std::uint8_t>(2 * j | ((2 * j + 1) << 4));
    a.scales.as<std::uint8_t>()[0] = static_cast<std::uint8_t>(scale);
    a.global_scale = 0x1p-5f;
    EXPECT_TRUE(compare(a, only(Target::kBf16, a)).exact()) << scale;
    a.global_scale = 0x1.234567p-3f;
    EXPECT_EQ(compare(a, only(Target::kBf16, a)).exact(), scale == 0) << scale;
  }
}

TEST(Encode, Fp8AndInt4ToBf16) {
  HostMatrix fp8 = quant::make_host_matrix(Format::kFp8Block128, 3, 256, DType::kF8E8M0);
  for (std::size_t i = 0; i < fp8.data.size(); ++i) {
    const auto code = static_cast<std::uint8_t>(i % 256);
    fp8.data.as<std::uint8_t>()[i] = (code & 0x7F) == 0x7F ? std::uint8_t{0} : code;
  }
  fp8.scales.as<std::uint8_t>()[0] = 100;
  fp8.scales.as<std::uint8_t>()[1] = 130;
  EXPECT_TRUE(compare(fp8, only(Target::kBf16, fp8)).exact());

  HostMatrix int4 = quant::make_host_matrix(Format::kInt4G128, 1, 128);  // codes -8..7
  for (int j = 0; j < 64; ++j)
    int4.data.as<std::uint8_t>()[j] =
        static_cast<std::uint8_t>((2 * j % 16) | (((2 * j + 1) % 16) << 4));
  int4.scales.as<std::uint16_t>()[0] = 0x3F81;  // 1 + 1/128: 7 times it needs 10 bits
  const HostMatrix made = only(Target::kBf16, int4);
  const MatrixError error = compare(int4, made);
  EXPECT_GT(error.inexact_values, 0);
  EXPECT_LE(error.worst, 8 * 1.01 / 256);  // half a bf16 step at 8
  EXPECT_EQ(value(made, 0, 9), 1.0f + 0x1p-7f);
}

// Each code is the nearest multiple of the group's scale, saturating: checked against every neighbour.
TEST(Encode, ToInt4TakesTheNearestCode) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0.0f, 0.03f);
  HostMatrix a = quant::make_host_matrix(Format::kF32, 5, 256);
  for (int i = 0; i < 5 * 256; ++i) a.data.as<float>()[i] = normal(random);
  const HostMatrix made = only(Target::kInt4, a);
  EXPECT_EQ(made.format, Format::kInt4G128);
  EXPECT_EQ(made.scale_dtype, DType::kBF16);
  for (std::int64_t r = 0; r < 5; ++r)
    for (std::int64_t g = 0; g < 2; ++g) {
      float amax = 0.0f;
      for (std::int64_t c = g * 128; c < g * 128 + 128; ++c)
        amax = std::max(amax, std::fabs(value(a, r, c)));
      const auto code = static_cast<std::uint32_t>(made.scales.as<std::uint16_t>()[r * 2 + g]);
      const double scale = std::bit_cast<float>(code << 16);
      EXPECT_NEAR(scale, amax / 7.5, amax / 7.5 / 256);
      for (std::int64_t c = g * 128; c < g * 128 + 128; ++c) {
        const double off = std::fabs(value(made, r, c) - value(a, r, c));
        for (int q = -8; q <= 7; ++q)
          ASSERT_LE(off, std::fabs(q * scale - value(a, r, c)) * (1 + 1e-6)) << r << " " << c;
      }
    }
}

TEST(Encode, OtherSourcesShareOneNvfp4Scale) {
  HostMatrix gate = quant::make_host_matrix(Format::kBF16, 2, 32);
  HostMatrix up = quant::make_host_matrix(Format::kF32, 2, 32);
  for (int i = 0; i < 64; ++i) {
    gate.data.as<std::uint16_t>()[i] = static_cast<std::uint16_t>(0x3F80 + i % 7);
    up.data.as<float>()[i] = i == 5 ? -26.88f : 0.01f * static_cast<float>(i);
  }
  const Encoded made = pair(gate, up);
  EXPECT_FLOAT_EQ(made.matrices[0].global_scale, 26.88f / 2688.0f);
  EXPECT_EQ(made.matrices[0].global_scale, made.matrices[1].global_scale);
  EXPECT_LT(compare(gate, made.matrices[0]).relative_rms(), 0.15);
  EXPECT_LT(compare(up, made.matrices[1]).relative_rms(), 0.15);

  // NVFP4 pairs with scales of their own (compressed-tensors) are brought to one.
  HostMatrix a = only(Target::kNvfp4, gate), b = only(Target::kNvfp4, up);
  ASSERT_NE(a.global_scale, b.global_scale);
  const Encoded again = pair(a, b);
  EXPECT_EQ(again.matrices[0].global_scale, again.matrices[1].global_scale);
  EXPECT_EQ(again.stats.moved_blocks, 0);
  b.global_scale = a.global_scale;
  EXPECT_EQ(pair(a, b).stats.requantised_blocks, 0);
  EXPECT_EQ(bytes(pair(a, b).matrices[1].scales), bytes(b.scales));
}

TEST(Encode, ExtremesStayFiniteOrAreRefusedByName) {
  for (const Target target : kTargets) {
    HostMatrix a = quant::make_host_matrix(Format::kF32, 1, 128);
    std::fill_n(a.data.as<float>(), 128, 0.0f);
    HostMatrix made = only(target, a);
    EXPECT_TRUE(compare(a, made).exact()) << target_name(target);
    a.data.as<float>()[3] = std::numeric_limits<float>::denorm_min();
    made = only(target, a);
    EXPECT_TRUE(std::isfinite(value(made, 0, 3))) << target_name(target);
    a.data.as<float>()[3] = 0x1p125f;
    made = only(target, a);
    EXPECT_NEAR(value(made, 0, 3) / 0x1p125f, 1.0f, 0.1f) << target_name(target);
    a.data.as<float>()[3] = std::numeric_limits<float>::max();
    try {
      made = only(target, a);
      ADD_FAILURE() << target_name(target);
    } catch (const CheckpointError& error) {
      EXPECT_NE(std::string(error.what()).find("w: expected weights of at most"), std::string::npos)
          << error.what();
    }
  }
}

TEST(Encode, WhatIsThereAlreadyStays) {
  std::mt19937 random(11);
  HostMatrix values = quant::make_host_matrix(Format::kF32, 130, 256);
  for (int i = 0; i < 130 * 256; ++i)
    values.data.as<float>()[i] = static_cast<float>(random() % 1000) - 500.0f;
  for (const Target target : kTargets) {
    const HostMatrix once = only(target, values);
    EncodeStats stats;
    const HostMatrix twice = only(target, once, &stats);
    EXPECT_EQ(bytes(twice.data), bytes(once.data)) << target_name(target);
    EXPECT_EQ(bytes(twice.scales), bytes(once.scales)) << target_name(target);
    EXPECT_EQ(twice.global_scale, once.global_scale);
    EXPECT_EQ(stats.requantised_blocks, 0) << target_name(target);
  }
}

TEST(Compare, CountsBlocksOfTheTargetAndFindsTheWorst) {
  HostMatrix source = quant::make_host_matrix(Format::kF32, 3, 256);
  std::fill_n(source.data.as<float>(), 3 * 256, 1.0f);
  HostMatrix made = only(Target::kInt4, source);
  source.data.as<float>()[256 + 130] = 3.0f;  // row 1, second group
  source.data.as<float>()[2 * 256 + 7] = 1.5f;
  const float near = value(made, 0, 0);
  for (int i = 0; i < 3 * 256; ++i)
    if (source.data.as<float>()[i] == 1.0f) source.data.as<float>()[i] = near;
  const MatrixError error = compare(source, made);
  EXPECT_EQ(error.values, 3 * 256);
  EXPECT_EQ(error.inexact_values, 2);
  EXPECT_EQ(error.blocks, 6);
  EXPECT_EQ(error.inexact_blocks, 2);
  EXPECT_EQ(error.worst, 3.0 - near);
  EXPECT_EQ(error.worst_row, 1);
  EXPECT_EQ(error.worst_col, 130);
  const double squares = (3.0 - near) * (3.0 - near) + (1.5 - near) * (1.5 - near);
  EXPECT_NEAR(error.relative_rms(), std::sqrt(squares / (766.0 * near * near + 9.0 + 2.25)), 1e-12);
  MatrixError sum = error;
  sum.add(error);
  EXPECT_EQ(sum.inexact_blocks, 4);
  EXPECT_EQ(sum.relative_rms(), error.relative_rms());
}

}  // namespace
}  // namespace nibble::convert
