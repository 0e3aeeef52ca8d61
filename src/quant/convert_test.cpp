// Conversions at each edge of exactness (quantization.md 3), and the statistics of scales.
#include "quant/convert.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "quant/fp8_block.h"
#include "quant/mxfp4.h"
#include "quant/nvfp4.h"
#include "quant/scale_stats.h"

namespace nibble::quant {
namespace {

using tensor::DType;

// How far `matrix` is from the values it was made of. Equal zeros of different sign count as equal.
struct ConversionError {
  std::int64_t values = 0;
  std::int64_t inexact = 0;   // of them
  double relative_rms = 0.0;  // |found - expected|_2 / |expected|_2; 0 when both vanish
  double worst = 0.0;         // the largest |found - expected|
  bool exact() const { return inexact == 0; }
};
ConversionError conversion_error(const HostMatrix& matrix, std::span<const float> expected) {
  NIBBLE_CHECK(static_cast<std::int64_t>(expected.size()) == matrix.rows * matrix.cols,
               "[{}, {}] against {} values", matrix.rows, matrix.cols, expected.size());
  ConversionError error;
  error.values = static_cast<std::int64_t>(expected.size());
  double squares = 0.0, norm = 0.0;
  std::vector<float> row(static_cast<std::size_t>(matrix.cols));
  for (std::int64_t r = 0; r < matrix.rows; ++r) {
    decode_row(matrix, r, row);
    const auto wanted = expected.subspan(static_cast<std::size_t>(r) * row.size(), row.size());
    for (std::size_t c = 0; c < row.size(); ++c) {
      norm += static_cast<double>(wanted[c]) * wanted[c];
      if (row[c] == wanted[c]) continue;
      const double off = std::fabs(static_cast<double>(row[c]) - wanted[c]);
      ++error.inexact;
      squares += off * off;
      error.worst = std::max(error.worst, off);
    }
  }
  if (norm > 0.0)
    error.relative_rms = std::sqrt(squares / norm);
  else if (squares > 0.0)
    error.relative_rms = std::numeric_limits<double>::infinity();
  return error;
}

// [rows, cols] with all sixteen codes in every block of 16, and the given exponents (of 2) block by
// block.
HostMatrix mxfp4(std::int64_t rows, std::int64_t cols, const std::vector<int>& exponents) {
  HostMatrix m = make_host_matrix(Format::kMxfp4, rows, cols);
  for (std::size_t i = 0; i < m.data.size(); ++i)
    m.data.as<std::uint8_t>()[i] =
        static_cast<std::uint8_t>((2 * i) % 16 | ((2 * i + 1) % 16) << 4);
  for (std::size_t i = 0; i < m.scales.size(); ++i)
    m.scales.as<std::uint8_t>()[i] =
        static_cast<std::uint8_t>(127 + exponents[i % exponents.size()]);
  return m;
}

Nvfp4FromMxfp4 to_nvfp4(const HostMatrix& m) {
  const HostMatrix* const one[] = {&m};
  return mxfp4_to_nvfp4(one);
}

TEST(Mxfp4ToNvfp4, ExactUpToASpanOf17) {
  for (const int span : {0, 6, 11, 14, 15, 17}) {
    for (const int top : {-100, -7, 0, 40, 125}) {
      const HostMatrix m = mxfp4(4, 64, {top, top - span, top - span / 2});
      const Nvfp4FromMxfp4 out = to_nvfp4(m);
      EXPECT_EQ(out.span, span);
      EXPECT_EQ(out.blocks, 8);
      EXPECT_EQ(out.requantised_blocks, 0);
      EXPECT_EQ(out.inexact_blocks, 0);
      const HostMatrix& n = out.matrices[0];
      EXPECT_EQ(n.global_scale, std::ldexp(1.0f, top - 8));
      EXPECT_TRUE(conversion_error(n, to_floats(m)).exact()) << span << " " << top;
      EXPECT_TRUE(std::equal(n.data.span().begin(), n.data.span().end(), m.data.data()));
      const ScaleStats stats = scale_stats(n);
      EXPECT_TRUE(stats.powers_of_two);
      EXPECT_EQ(stats.max_exponent, 8);
      EXPECT_EQ(stats.min_exponent, 8 - span);
    }
  }
}

TEST(Mxfp4ToNvfp4, ASpanOf18IsCountedAndRequantised) {
  const HostMatrix m = mxfp4(1, 96, {0, -18, -5});
  const Nvfp4FromMxfp4 out = to_nvfp4(m);
  EXPECT_EQ(out.span, 18);
  EXPECT_EQ(out.requantised_blocks, 1);
  EXPECT_EQ(out.inexact_blocks, 1);
  const std::vector<float> expected = to_floats(m), found = to_floats(out.matrices[0]);
  for (std::size_t c = 0; c < expected.size(); ++c) {
    if (c < 32 || c >= 64) {
      EXPECT_EQ(found[c], expected[c]) << c;
    } else {  // on a grid of half the resolution: at most half a step off
      EXPECT_LE(std::fabs(found[c] - expected[c]), 0.5f * 0x1p-18f) << c;
    }
  }
  // Codes that have a half (0, 1, 2, 3, 4, 6) survive even so.
  HostMatrix even = mxfp4(1, 64, {0, -18});
  for (int i = 16; i < 32; ++i) even.data.as<std::uint8_t>()[i] = i % 2 == 0 ? 0x42 : 0xF6;
  const Nvfp4FromMxfp4 again = to_nvfp4(even);
  EXPECT_EQ(again.requantised_blocks, 1);
  EXPECT_EQ(again.inexact_blocks, 0);
  EXPECT_TRUE(conversion_error(again.matrices[0], to_floats(even)).exact());
  // Far below, everything becomes zero.
  const Nvfp4FromMxfp4 far = to_nvfp4(mxfp4(1, 64, {60, -60}));
  EXPECT_EQ(far.inexact_blocks, 1);
  EXPECT_EQ(to_floats(far.matrices[0])[40], 0.0f);
}

TEST(Mxfp4ToNvfp4, GateAndUpShareTheGlobalScale) {
  const HostMatrix gate = mxfp4(2, 64, {3, 1}), up = mxfp4(2, 64, {-9, -14});
  const HostMatrix* const pair[] = {&gate, &up};
  const Nvfp4FromMxfp4 out = mxfp4_to_nvfp4(pair);
  ASSERT_EQ(out.matrices.size(), 2u);
  EXPECT_EQ(out.span, 17);
  EXPECT_EQ(out.inexact_blocks, 0);
  EXPECT_EQ(out.matrices[0].global_scale, 0x1p-5f);
  EXPECT_EQ(out.matrices[1].global_scale, 0x1p-5f);
  EXPECT_TRUE(conversion_error(out.matrices[0], to_floats(gate)).exact());
  EXPECT_TRUE(conversion_error(out.matrices[1], to_floats(up)).exact());
  const HostMatrix lower = mxfp4(2, 64, {-15});
  const HostMatrix* const wide[] = {&gate, &lower};
  EXPECT_EQ(mxfp4_to_nvfp4(wide).requantised_blocks, 4);
}

TEST(Mxfp4ToNvfp4, BlocksOfZerosDoNotCount) {
  HostMatrix m = mxfp4(1, 64, {2, -127});
  for (int i = 16; i < 32; ++i) m.data.as<std::uint8_t>()[i] = i % 3 == 0 ? 0x80 : 0x08;  // -0 too
  const Nvfp4FromMxfp4 out = to_nvfp4(m);
  EXPECT_EQ(out.span, 0);
  EXPECT_EQ(out.requantised_blocks, 0);
  EXPECT_EQ(out.matrices[0].scales.as<std::uint8_t>()[2], e4m3_encode(1.0f));
  const std::vector<float> expected = to_floats(m), found = to_floats(out.matrices[0]);
  for (std::size_t c = 0; c < 64; ++c) {
    EXPECT_EQ(found[c], expected[c]);
    EXPECT_EQ(std::signbit(found[c]), std::signbit(expected[c]));
  }
  HostMatrix zeros = mxfp4(1, 32, {-127});
  std::fill_n(zeros.data.data(), 16, std::byte{0});
  EXPECT_EQ(to_nvfp4(zeros).matrices[0].global_scale, 1.0f);
}

TEST(Mxfp4ToFp8, ExactUpToASpanOf14) {
  // All exponents of one block of 128 x 128; 6 * 2^k_max sits at the top, 0.5 * 2^(k_max - 14) is
  // E4M3's smallest.
  for (const int span : {6, 11, 14, 15}) {
    const HostMatrix m = mxfp4(128, 128, {0, -span, -span / 2});
    const HostMatrix fp8 = encode_matrix(Format::kFp8Block128, 128, 128, to_floats(m));
    EXPECT_EQ(conversion_error(fp8, to_floats(m)).exact(), span <= 14) << span;
  }
  // Every e2m1 * 2^k, -8 <= k <= 6, is an E4M3 value; the next ones are not.
  for (int k = -9; k <= 7; ++k) {
    bool exact = true;
    for (const float value : kE2M1Values)
      exact = exact && e4m3_decode(e4m3_encode(std::ldexp(value, k))) == std::ldexp(value, k);
    EXPECT_EQ(exact, k >= -8 && k <= 6) << k;
  }
}

TEST(Conversions, ToBf16) {
  for (const int top : {-127, -100, 0, 125}) {
    const HostMatrix m = mxfp4(2, 64, {top});
    EXPECT_TRUE(
        conversion_error(encode_matrix(Format::kBF16, 2, 64, to_floats(m)), to_floats(m)).exact())
        << top;
  }
  // NVFP4 with a power of two as the global scale: 6 bits of product fit bf16's 8.
  HostMatrix m = make_host_matrix(Format::kNvfp4, 127, 16);
  m.global_scale = 0x1p-11f;
  for (int r = 0; r < 127; ++r) {
    for (int j = 0; j < 8; ++j)
      m.data.as<std::uint8_t>()[r * 8 + j] = static_cast<std::uint8_t>(2 * j | (2 * j + 1) << 4);
    m.scales.as<std::uint8_t>()[r] = static_cast<std::uint8_t>(r);
  }
  EXPECT_TRUE(
      conversion_error(encode_matrix(Format::kBF16, 127, 16, to_floats(m)), to_floats(m)).exact());
  m.global_scale = 0.001f;
  EXPECT_FALSE(
      conversion_error(encode_matrix(Format::kBF16, 127, 16, to_floats(m)), to_floats(m)).exact());
}

TEST(Conversions, Nvfp4ToFp8IsExactForPowersOfTwoOnly) {
  // 607 of the 882 positive products e2m1 * e4m3 are E4M3 values (quantization.md 3.3).
  int products = 0, exact = 0;
  for (int code = 1; code < 8; ++code)
    for (int scale = 1; scale < 127; ++scale) {
      const float product = kE2M1Values[static_cast<std::size_t>(code)] *
                            kE4M3Values[static_cast<std::size_t>(scale)];
      ++products;
      exact += e4m3_decode(e4m3_encode(product)) == product;
    }
  EXPECT_EQ(products, 882);
  EXPECT_EQ(exact, 607);
}

TEST(Conversions, OfRandomMxfp4WeightsLoseWhatTheTableSays) {
  // quantization.md 1.7, "requantizing MXFP4 weights", Gaussian.
  std::mt19937 random(4);
  std::normal_distribution<float> draw;
  std::vector<float> values(262'144);
  for (float& value : values) value = draw(random);
  const std::vector<float> weights = to_floats(encode_matrix(Format::kMxfp4, 256, 1024, values));
  const auto percent = [&](Format format) {
    return 100.0 *
           conversion_error(encode_matrix(format, 256, 1024, weights), weights).relative_rms;
  };
  // Here the mantissa of the tensor's amax decides how every block's scale is rounded: 7.31 there.
  EXPECT_NEAR(percent(Format::kNvfp4), 7.31, 1.5);
  EXPECT_NEAR(percent(Format::kInt4G32), 8.84, 0.3);
  EXPECT_NEAR(percent(Format::kInt4G128), 11.45, 0.3);
  EXPECT_EQ(percent(Format::kFp8Block128), 0.0);
  EXPECT_EQ(percent(Format::kBF16), 0.0);
  EXPECT_EQ(percent(Format::kMxfp4), 0.0);
}

TEST(Conversions, ErrorCountsAndMeasures) {
  const HostMatrix m = encode_matrix(Format::kBF16, 1, 4, std::vector<float>{1, 2, 3, 4});
  const ConversionError error = conversion_error(m, std::vector<float>{1, 2, 3, 4.5f});
  EXPECT_EQ(error.values, 4);
  EXPECT_EQ(error.inexact, 1);
  EXPECT_EQ(error.worst, 0.5);
  EXPECT_DOUBLE_EQ(error.relative_rms, 0.5 / std::sqrt(1 + 4 + 9 + 20.25));
}

TEST(ScaleStats, FindsNanNegativeAndSpan) {
  const auto of = [](DType dtype, std::vector<std::uint8_t> codes) {
    return scale_stats(dtype, std::as_bytes(std::span(codes)));
  };
  ScaleStats stats = of(DType::kF8E8M0, {0, 1, 0xFF, 130, 120, 0xFF});
  EXPECT_EQ(stats.count, 6);
  EXPECT_EQ(stats.nan, 2);
  EXPECT_EQ(stats.min_exponent, -7);
  EXPECT_EQ(stats.max_exponent, 3);
  EXPECT_EQ(stats.span(), 10);
  EXPECT_TRUE(stats.powers_of_two);
  stats = of(DType::kF8E4M3, {0x7F, 0xFF, 0x80, 0x81, 0x38, 0x01});
  EXPECT_EQ(stats.nan, 2);
  EXPECT_EQ(stats.negative, 2);
  EXPECT_EQ(stats.min_exponent, -9);
  EXPECT_EQ(stats.max_exponent, 0);
  EXPECT_TRUE(stats.powers_of_two);
  EXPECT_FALSE(of(DType::kF8E4M3, {0x39}).powers_of_two);
  EXPECT_EQ(of(DType::kF8E8M0, {0, 1}).span(), 0);
  EXPECT_FALSE(of(DType::kF8E8M0, {0, 1}).max_exponent.has_value());
  ScaleStats sum = of(DType::kF8E8M0, {127});
  sum.add(of(DType::kF8E8M0, {140, 0xFF}));
  EXPECT_EQ(sum.span(), 13);
  EXPECT_EQ(sum.nan, 1);
  const std::vector<float> wide = {0.75f, -3.0f, std::numeric_limits<float>::infinity()};
  stats = scale_stats(DType::kF32, std::as_bytes(std::span(wide)));
  EXPECT_EQ(stats.nan, 1);
  EXPECT_EQ(stats.negative, 1);
  EXPECT_EQ(stats.min_exponent, -1);
  EXPECT_EQ(stats.max_exponent, 1);
  EXPECT_FALSE(stats.powers_of_two);
}

}  // namespace
}  // namespace nibble::quant
