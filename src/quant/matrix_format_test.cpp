#include "quant/matrix_format.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "quant/bf16.h"
#include "quant/fp8_block.h"
#include "quant/mxfp4.h"

namespace nibble::quant {
namespace {

std::vector<float> random_values(std::int64_t count, float spread, std::uint32_t seed) {
  std::mt19937 engine(seed);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) {
    const float unit = static_cast<float>(engine() >> 8) * 0x1p-23f - 1.0f;
    value = unit * std::exp2(spread * (static_cast<float>(engine() >> 8) * 0x1p-24f - 0.5f));
  }
  return values;
}

std::vector<float> decode(const HostMatrix& matrix) {
  std::vector<float> values(static_cast<std::size_t>(matrix.rows * matrix.cols));
  for (std::int64_t r = 0; r < matrix.rows; ++r) {
    decode_row(matrix, r,
               std::span(values).subspan(static_cast<std::size_t>(r * matrix.cols),
                                         static_cast<std::size_t>(matrix.cols)));
  }
  return values;
}

double relative_rms(const std::vector<float>& a, const std::vector<float>& b) {
  double error = 0;
  double norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    error += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
    norm += static_cast<double>(b[i]) * b[i];
  }
  return std::sqrt(error / norm);
}

TEST(MatrixFormat, ByteCounts) {
  EXPECT_STREQ(format_name(Format::kFp8Block128), "FP8 128x128 (E8M0)");
  EXPECT_STREQ(format_name(Format::kMxfp4), "MXFP4");
  EXPECT_EQ(data_bytes(Format::kF32, 3, 5), 60);
  EXPECT_EQ(data_bytes(Format::kBF16, 3, 5), 30);
  EXPECT_EQ(data_bytes(Format::kFp8Block128, 130, 257), 130 * 257);
  EXPECT_EQ(scale_bytes(Format::kFp8Block128, 130, 257), 2 * 3);
  EXPECT_EQ(data_bytes(Format::kMxfp4, 2048, 4096), 2048 * 2048);
  EXPECT_EQ(scale_bytes(Format::kMxfp4, 2048, 4096), 2048 * 128);
  EXPECT_EQ(data_bytes(Format::kF32, 0, 0), 0);
  EXPECT_DEATH(row_bytes(Format::kMxfp4, 33), "33");
}

TEST(MatrixFormat, BytesAreAlignedAndHaveAZeroTail) {
  AlignedBytes bytes(3);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(bytes.data()) % 64, 0u);
  for (std::size_t i = 0; i < AlignedBytes::kTailBytes; ++i)
    EXPECT_EQ(bytes.data()[3 + i], std::byte{0});
  const std::byte* place = bytes.data();
  const AlignedBytes moved = std::move(bytes);
  EXPECT_EQ(moved.data(), place);
  EXPECT_EQ(moved.size(), 3u);
  EXPECT_EQ(bytes.size(),
            0u);  // NOLINT(bugprone-use-after-move): the moved-from state is part of the contract
  EXPECT_EQ(AlignedBytes(0).data(), nullptr);
}

// Multiplying by fp32(1/448) and fp32(1/6) finds the same power of two as exact division, for every
// mantissa.
TEST(MatrixFormat, ScaleRuleIsExactForEveryMantissa) {
  for (std::uint32_t mantissa = 0; mantissa < (1u << 23); ++mantissa) {
    const float amax = std::bit_cast<float>((127u << 23) | mantissa);  // [1, 2)
    const int fp8 = amax <= 1.75f ? -8 : -7;                           // 448 = 1.75 * 2^8
    const int fp4 = amax <= 1.5f ? -2 : -1;                            // 6 = 1.5 * 2^2
    ASSERT_EQ(fp8_scale(amax), 127 + fp8) << amax;
    ASSERT_EQ(mxfp4_scale(amax), 127 + fp4) << amax;
  }
}

TEST(MatrixFormat, ScaleEdges) {
  EXPECT_EQ(mxfp4_scale(0.0f), 1);  // the floor 6 * 2^-126
  EXPECT_EQ(mxfp4_scale(6.0f), 127);
  EXPECT_EQ(mxfp4_scale(std::nextafter(6.0f, 7.0f)), 128);
  EXPECT_EQ(fp8_scale(448.0f), 127);
  EXPECT_EQ(fp8_scale(std::nextafter(448.0f, 500.0f)), 128);
  EXPECT_EQ(fp8_scale(0x1.cp-119f), 0);  // 448 * 2^-127
  EXPECT_EQ(fp8_scale(std::numeric_limits<float>::infinity()), kE8M0Nan);
}

TEST(MatrixFormat, EveryFp8CodeWithEveryScaleByte) {
  HostMatrix matrix = make_host_matrix(Format::kFp8Block128, 1, 256);
  std::vector<float> row(256);
  for (int code = 0; code < 256; ++code)
    matrix.data.as<std::uint8_t>()[code] = static_cast<std::uint8_t>(code);
  for (int scale = 0; scale <= kFp8MaxFiniteScale; ++scale) {
    matrix.scales.as<std::uint8_t>()[0] = static_cast<std::uint8_t>(scale);
    matrix.scales.as<std::uint8_t>()[1] = static_cast<std::uint8_t>(kFp8MaxFiniteScale - scale);
    decode_row(matrix, 0, row);
    for (int code = 0; code < 256; ++code) {
      const auto byte = static_cast<std::uint8_t>(code);
      if (e4m3_is_nan(byte)) {
        EXPECT_TRUE(std::isnan(row[static_cast<std::size_t>(code)]));
        continue;
      }
      const int exponent = code < 128 ? scale : kFp8MaxFiniteScale - scale;
      const double exact = std::ldexp(static_cast<double>(e4m3_decode(byte)), exponent - 127);
      ASSERT_TRUE(std::isfinite(row[static_cast<std::size_t>(code)]));
      ASSERT_EQ(row[static_cast<std::size_t>(code)], exact) << code << " " << scale;
    }
  }
}

TEST(MatrixFormat, EveryMxfp4CodeWithEveryScaleByte) {
  HostMatrix matrix = make_host_matrix(Format::kMxfp4, 2, 64);
  std::vector<float> row(64);
  for (int j = 0; j < 64; ++j)
    matrix.data.as<std::uint8_t>()[j] =
        static_cast<std::uint8_t>((2 * j) % 16 | ((2 * j + 1) % 16) << 4);
  for (int scale = 0; scale <= kMxfp4MaxFiniteScale; ++scale) {
    for (int g = 0; g < 4; ++g)
      matrix.scales.as<std::uint8_t>()[g] =
          static_cast<std::uint8_t>((scale + g) % (kMxfp4MaxFiniteScale + 1));
    decode_row(matrix, 1, row);
    for (int c = 0; c < 64; ++c) {
      const int exponent = (scale + 2 + c / 32) % (kMxfp4MaxFiniteScale + 1);
      const double exact = std::ldexp(
          static_cast<double>(kE2M1Values[static_cast<std::size_t>(c % 16)]), exponent - 127);
      ASSERT_EQ(row[static_cast<std::size_t>(c)], exact) << c << " " << scale;
    }
  }
  EXPECT_FALSE(std::isfinite(6.0f * e8m0_decode(kMxfp4MaxFiniteScale + 1)));
  EXPECT_FALSE(std::isfinite(448.0f * e8m0_decode(kFp8MaxFiniteScale + 1)));
}

TEST(MatrixFormat, Mxfp4GroupNamesItsColumns) {
  Mxfp4Group group{};
  group.bytes[0] = 0x21;
  group.bytes[15] = 0xF0;
  EXPECT_EQ(group.code(0), 1);
  EXPECT_EQ(group.code(1), 2);
  EXPECT_EQ(group.code(30), 0);
  EXPECT_EQ(group.code(31), 15);
}

TEST(MatrixFormat, EncodingGridValuesIsExact) {
  for (const Format format : {Format::kF32, Format::kBF16, Format::kFp8Block128, Format::kMxfp4}) {
    for (const std::int64_t rows : {1, 127, 129}) {
      for (const std::int64_t cols : {32, 160, 256}) {
        const HostMatrix once = encode_matrix(format, rows, cols, random_values(rows * cols, 6, 7));
        const std::vector<float> values = decode(once);
        const std::vector<float> again = decode(encode_matrix(format, rows, cols, values));
        EXPECT_EQ(values, again) << format_name(format) << " " << rows << "x" << cols;
      }
    }
  }
}

TEST(MatrixFormat, RoundTripErrorOfUniformValues) {
  // A value lies within half a step of the grid: relative to it at most 2^-9 in bf16 and 2^-4 in
  // E4M3. MXFP4: 9.88 % RMS, from a double-precision simulation of 8192 groups of 32 uniform
  // values.
  const std::int64_t rows = 256;
  const std::int64_t cols = 256;
  const std::vector<float> values = random_values(rows * cols, 0, 3);
  EXPECT_LT(relative_rms(decode(encode_matrix(Format::kBF16, rows, cols, values)), values),
            1.0 / 512);
  EXPECT_LT(relative_rms(decode(encode_matrix(Format::kFp8Block128, rows, cols, values)), values),
            1.0 / 16);
  EXPECT_NEAR(relative_rms(decode(encode_matrix(Format::kMxfp4, rows, cols, values)), values),
              0.0988, 0.002);
  EXPECT_EQ(decode(encode_matrix(Format::kF32, rows, cols, values)), values);
}

TEST(MatrixFormat, ZeroBlocksStayZero) {
  const std::vector<float> zeros(128 * 128, 0.0f);
  for (const Format format : {Format::kFp8Block128, Format::kMxfp4}) {
    EXPECT_EQ(decode(encode_matrix(format, 128, 128, zeros)), zeros);
  }
}

TEST(MatrixFormat, ActivationGroupHasTheReferencesFloor) {
  std::vector<float> values(128, 0.0f);
  std::vector<std::uint8_t> codes(128, 1);
  EXPECT_EQ(fp8_encode_group(values, 1e-4f, codes), 127 - 22);  // 1e-4 / 448 = 2^-22.09
  EXPECT_EQ(codes, std::vector<std::uint8_t>(128, 0));
  values[5] = -448.0f;
  values[6] = 1.0f;
  EXPECT_EQ(fp8_encode_group(values, 1e-4f, codes), 127);
  EXPECT_EQ(codes[5], 0xFE);
  EXPECT_EQ(codes[6], e4m3_encode(1.0f));
}

}  // namespace
}  // namespace nibble::quant
