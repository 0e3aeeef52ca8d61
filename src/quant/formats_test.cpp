// NVFP4, INT4, FP8 with other blocks and scales, and the scale rules: every code with every scale,
// every tie, every edge, against arithmetic done in double.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "quant/fp8_block.h"
#include "quant/int4.h"
#include "quant/matrix_format.h"
#include "quant/mxfp4.h"
#include "quant/nvfp4.h"
#include "quant/scale.h"

namespace nibble::quant {
namespace {

using tensor::DType;

std::vector<float> decode(const HostMatrix& matrix) {
  std::vector<float> values(static_cast<std::size_t>(matrix.rows * matrix.cols));
  const auto cols = static_cast<std::size_t>(matrix.cols);
  for (std::int64_t r = 0; r < matrix.rows; ++r)
    decode_row(matrix, r, std::span(values).subspan(static_cast<std::size_t>(r) * cols, cols));
  return values;
}

std::vector<float> normal_values(std::int64_t count, std::uint32_t seed, float deviation = 1.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> draw(0.0f, deviation);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = draw(random);
  return values;
}

TEST(Formats, ByteCountsAndNames) {
  EXPECT_EQ(data_bytes(Format::kNvfp4, 2048, 4096), 2048 * 2048);
  EXPECT_EQ(scale_bytes(Format::kNvfp4, 2048, 4096), 2048 * 256);
  EXPECT_EQ(data_bytes(Format::kInt4G128, 2048, 4096), 2048 * 2048);
  EXPECT_EQ(scale_bytes(Format::kInt4G128, 2048, 4096), 2048 * 32 * 2);
  EXPECT_EQ(scale_bytes(Format::kInt4G32, 2048, 4096, DType::kF32), 2048 * 128 * 4);
  EXPECT_EQ(scale_bytes(Format::kFp8Block32, 33, 65), 2 * 3);
  EXPECT_EQ(scale_bytes(Format::kFp8Block32, 33, 65, DType::kF32), 2 * 3 * 4);
  EXPECT_EQ(scale_bytes(Format::kFp8Block128, 129, 65, DType::kBF16), 2 * 2);
  EXPECT_EQ(format_name(Format::kFp8Block128, DType::kF32), "FP8 128x128 (F32)");
  EXPECT_EQ(format_name(Format::kFp8Block32, DType::kF8E8M0), "FP8 32x32 (E8M0)");
  EXPECT_EQ(format_name(Format::kInt4G128, DType::kBF16), "INT4 g128");
  EXPECT_EQ(format_name(Format::kInt4G128, DType::kF16), "INT4 g128 (F16)");
  EXPECT_EQ(format_name(Format::kBF16, DType::kF32), "BF16");
  EXPECT_DEATH(row_bytes(Format::kNvfp4, 24), "24");
  EXPECT_DEATH(row_bytes(Format::kInt4G128, 96), "96");
  EXPECT_DEATH(scale_bytes(Format::kMxfp4, 1, 32, DType::kF32), "F32");
  // One routed expert of V4-Flash: 25.17 M weights (quantization.md 2.2).
  const auto expert_bytes = [](Format f) {
    return 3 * (data_bytes(f, 2048, 4096) + scale_bytes(f, 2048, 4096));
  };
  EXPECT_EQ(expert_bytes(Format::kMxfp4), 13'369'344);
  EXPECT_EQ(expert_bytes(Format::kNvfp4), 14'155'776);
  EXPECT_EQ(expert_bytes(Format::kInt4G128), 12'976'128);
}

// All 16 x 127 pairs of codes and scales, for several global scales; both nibbles of a byte.
TEST(Nvfp4, EveryCodeWithEveryScaleByte) {
  for (const float global : {1.0f, 0x1p-20f, 0.0173f, 3.0e-5f, 0x1p100f}) {
    HostMatrix m = make_host_matrix(Format::kNvfp4, 127, 32);
    m.global_scale = global;
    for (std::int64_t r = 0; r < 127; ++r) {
      for (int j = 0; j < 16; ++j)  // columns 0..15 are codes 0..15, columns 16..31 the reverse
        m.data.as<std::uint8_t>()[r * 16 + j] = static_cast<std::uint8_t>(
            j < 8 ? 2 * j | (2 * j + 1) << 4 : (31 - 2 * j) | (30 - 2 * j) << 4);
      m.scales.as<std::uint8_t>()[2 * r] = static_cast<std::uint8_t>(r);
      m.scales.as<std::uint8_t>()[2 * r + 1] = static_cast<std::uint8_t>(126 - r);
    }
    const std::vector<float> values = decode(m);
    for (std::int64_t r = 0; r < 127; ++r)
      for (std::int64_t c = 0; c < 32; ++c) {
        const std::int64_t code = c < 16 ? c : 31 - c, scale = c < 16 ? r : 126 - r;
        const double product = static_cast<double>(kE2M1Values[static_cast<std::size_t>(code)]) *
                               static_cast<double>(kE4M3Values[static_cast<std::size_t>(scale)]);
        ASSERT_EQ(static_cast<float>(product), product);  // 6 significant bits
        const float found = values[static_cast<std::size_t>(r * 32 + c)];
        ASSERT_EQ(found, static_cast<float>(product * global)) << code << " " << scale;
        ASSERT_EQ(std::signbit(found), code >= 8);
      }
  }
}

TEST(Nvfp4, GroupNamesItsColumns) {
  Nvfp4Group group{};
  group.bytes[0] = 0x21;
  group.bytes[7] = 0xF0;
  EXPECT_EQ(group.code(0), 1);
  EXPECT_EQ(group.code(1), 2);
  EXPECT_EQ(group.code(14), 0);
  EXPECT_EQ(group.code(15), 15);
}

TEST(Nvfp4, ScaleRuleOfModelOpt) {
  EXPECT_EQ(nvfp4_global_scale(2688.0f), 1.0f);
  EXPECT_EQ(nvfp4_global_scale(1.0f), 1.0f / 2688.0f);
  EXPECT_EQ(nvfp4_global_scale(0.0f), 1.0f);
  EXPECT_EQ(nvfp4_scale(0.0f, 0.25f), e4m3_encode(1.0f));  // an all-zero block
  EXPECT_EQ(nvfp4_scale(6.0f, 1.0f), e4m3_encode(1.0f));
  EXPECT_EQ(nvfp4_scale(2688.0f, 1.0f), 0x7E);  // 448
  EXPECT_EQ(nvfp4_scale(1e30f, 1.0f), 0x7E);    // clamped
  EXPECT_EQ(nvfp4_scale(6.0f * 0x1p-9f, 1.0f), 0x01);
  EXPECT_EQ(nvfp4_scale(1e-30f, 1.0f), 0x01);                        // clamped at 2^-9, never 0
  EXPECT_EQ(nvfp4_scale(6.0f * 1.0625f, 1.0f), e4m3_encode(1.0f));   // tie to even
  EXPECT_EQ(nvfp4_scale(6.0f * 1.1875f, 1.0f), e4m3_encode(1.25f));  // tie to even, up
}

TEST(Nvfp4, EncodesEveryGridValueAndEveryTie) {
  // Row 0: the grid; row 1: the midpoints; row 2: their negatives; the last value fixes the scale at 1.
  std::vector<float> values = {0,     .5f, 1,  1.5f, 2, 3,    4,    6,     0,     -.5f, -1,
                               -1.5f, -2,  -3, -4,   6, .25f, .75f, 1.25f, 1.75f, 2.5f, 3.5f,
                               5,     0,   0,  0,    0, 0,    0,    0,     0,     6};
  for (std::size_t i = 0; i < 16; ++i) values.push_back(-values[16 + i]);
  const HostMatrix m = encode_nvfp4(3, 16, values, 1.0f);
  const std::vector<float> found = decode(m);
  for (std::size_t i = 0; i < 16; ++i) EXPECT_EQ(found[i], values[i]);
  const float winners[] = {0, 1, 1, 2, 2, 4, 4};
  for (std::size_t i = 0; i < 7; ++i) {
    EXPECT_EQ(found[16 + i], winners[i]);
    EXPECT_EQ(found[32 + i], -winners[i]);
  }
}

TEST(Nvfp4, SaturatesWhereTheScaleWasRoundedDown) {
  // amax / 6 = 1.0625 ties down to 1: the peak is 6.375 steps and becomes 6.
  std::vector<float> values(16, 0.0f);
  values[3] = 6.375f;
  values[4] = -6.375f;
  const std::vector<float> found = decode(encode_nvfp4(1, 16, values, 1.0f));
  EXPECT_EQ(found[3], 6.0f);
  EXPECT_EQ(found[4], -6.0f);
}

TEST(Nvfp4, ReciprocalGlobalScales) {
  // What compressed-tensors stores is 2688 / amax; one fp32 division brings it back.
  for (int exponent = -120; exponent <= 120; ++exponent)
    EXPECT_EQ(nvfp4_from_reciprocal(std::ldexp(1.0f, exponent)), std::ldexp(1.0f, -exponent));
  std::mt19937 random(3);
  for (int i = 0; i < 10'000; ++i) {
    const float stored = std::ldexp(1.0f + static_cast<float>(random() >> 9) * 0x1p-23f,
                                    static_cast<int>(random() % 60) - 30);
    const double exact = 1.0 / static_cast<double>(stored);
    EXPECT_EQ(nvfp4_from_reciprocal(stored), static_cast<float>(exact));
  }
  // Taken for a multiplier it would be off by its square.
  const float amax = 0.75f, stored = kNvfp4BlockMax / amax;
  EXPECT_NEAR(nvfp4_from_reciprocal(stored) / nvfp4_global_scale(amax), 1.0, 1e-6);
  EXPECT_NEAR(stored / nvfp4_global_scale(amax), static_cast<double>(stored) * stored, 1.0);
}

TEST(Nvfp4, LargestGlobalScaleKeepsWeightsFinite) {
  EXPECT_TRUE(std::isfinite(kNvfp4BlockMax * kNvfp4MaxFiniteGlobal));
  EXPECT_FALSE(std::isfinite(kNvfp4BlockMax * (kNvfp4MaxFiniteGlobal * 1.00001f)));
}

// All 16 codes with scales of the three types, both groups, both nibbles.
TEST(Int4, EveryCodeWithManyScales) {
  for (const Format format : {Format::kInt4G32, Format::kInt4G128})
    for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
      const std::int64_t group = traits(format).block_cols, cols = 2 * group;
      HostMatrix m = make_host_matrix(format, 256, cols, dtype);
      std::vector<float> scales;
      scales.reserve(512);
      for (int i = 0; i < 512; ++i)
        scales.push_back(
            store_scale(dtype, std::ldexp(1.0f + static_cast<float>(i % 251) / 256.0f, i % 29 - 14),
                        m.scales.data(), i));
      for (std::int64_t r = 0; r < 256; ++r)
        for (std::int64_t j = 0; j < cols / 2; ++j)
          m.data.as<std::uint8_t>()[r * cols / 2 + j] = static_cast<std::uint8_t>(r + 17 * j);
      const std::vector<float> values = decode(m);
      for (std::int64_t r = 0; r < 256; ++r)
        for (std::int64_t c = 0; c < cols; ++c) {
          const int byte = static_cast<int>((r + 17 * (c / 2)) & 0xFF);
          const int q = (c % 2 == 0 ? byte & 15 : byte >> 4) - 8;
          const double exact =
              q * static_cast<double>(scales[static_cast<std::size_t>(2 * r + c / group)]);
          ASSERT_EQ(values[static_cast<std::size_t>(r * cols + c)], static_cast<float>(exact))
              << format_name(format, dtype) << " row " << r << " column " << c;
        }
    }
}

TEST(Int4, WordIsPackedFromTheLowestBits) {
  // Element i of an int32 at bits 4i .. 4i + 3.
  Int4Word word;
  const std::uint32_t bits = 0x89ABCDEFu;  // codes F E D C B A 9 8
  std::memcpy(word.bytes, &bits, 4);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(word.value(i), 7 - i);
}

TEST(Int4, RoundsTiesToEvenAndSaturates) {
  for (int q = -8; q <= 7; ++q) {
    EXPECT_EQ(int4_encode(static_cast<float>(q), 1.0f), q + 8);
    const float tie = static_cast<float>(q) + 0.5f;
    const int even = q % 2 == 0 ? q : q + 1;
    EXPECT_EQ(int4_encode(tie, 1.0f), std::min(even, 7) + 8) << tie;
    EXPECT_EQ(int4_encode(0.25f * tie, 0.25f), std::min(even, 7) + 8) << tie;
  }
  EXPECT_EQ(int4_encode(1e9f, 1.0f), 15);
  EXPECT_EQ(int4_encode(-1e9f, 1.0f), 0);
  // scale = amax / 7.5: the positive peak clips by half a step, the negative one fits within half.
  std::vector<float> values(32, 0.0f);
  values[0] = 7.5f;
  values[1] = -7.5f;
  const std::vector<float> found = decode(encode_matrix(Format::kInt4G32, 1, 32, values));
  EXPECT_EQ(found[0], 7.0f);
  EXPECT_EQ(found[1], -8.0f);
}

TEST(Int4, EveryIntegerIsAnE4M3Value) {
  for (int q = -8; q <= 7; ++q)
    EXPECT_EQ(e4m3_decode(e4m3_encode(static_cast<float>(q))), static_cast<float>(q));
}

// Every E4M3 code with scales of every type and both block sizes, on a matrix with partial blocks.
TEST(Fp8Block, EveryCodeWithWideScales) {
  for (const Format format : {Format::kFp8Block128, Format::kFp8Block32})
    for (const DType dtype : {DType::kF8E8M0, DType::kF32, DType::kBF16}) {
      const std::int64_t rows = 140, cols = 300, block = traits(format).block_cols;
      HostMatrix m = make_host_matrix(format, rows, cols, dtype);
      const std::int64_t blocks = scale_count(format, rows, cols);
      EXPECT_EQ(blocks, ((rows + block - 1) / block) * ((cols + block - 1) / block));
      std::vector<float> scales;
      scales.reserve(512);
      for (int i = 0; i < blocks; ++i)
        scales.push_back(
            store_scale(dtype, std::ldexp(1.0f + static_cast<float>(i % 13) / 16.0f, i % 40 - 20),
                        m.scales.data(), i));
      for (std::int64_t i = 0; i < rows * cols; ++i) {
        const auto code = static_cast<std::uint8_t>(i * 7);
        m.data.as<std::uint8_t>()[i] = e4m3_is_nan(code) ? 0 : code;
      }
      const std::vector<float> values = decode(m);
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t c = 0; c < cols; ++c) {
          const std::int64_t i = r * cols + c;
          const double code = kE4M3Values[m.data.as<std::uint8_t>()[i]];
          const std::int64_t b = r / block * ((cols + block - 1) / block) + c / block;
          ASSERT_EQ(values[static_cast<std::size_t>(i)],
                    static_cast<float>(code * scales[static_cast<std::size_t>(b)]))
              << format_name(format, dtype) << " " << r << " " << c;
        }
    }
}

TEST(Fp8Block, ScaleRules) {
  // One block of amax 1000: E8M0 takes the power of two above 1000 / 448, the others the quotient.
  std::vector<float> values(1024, 1.0f);
  values[77] = -1000.0f;
  const HostMatrix power = encode_matrix(Format::kFp8Block32, 32, 32, values);
  EXPECT_EQ(scale_value(DType::kF8E8M0, power.scales.data(), 0), 4.0f);
  const HostMatrix wide = encode_matrix(Format::kFp8Block32, 32, 32, values, DType::kF32);
  EXPECT_EQ(scale_value(DType::kF32, wide.scales.data(), 0), 1000.0f / 448.0f);
  EXPECT_EQ(decode(wide)[77], -448.0f * (1000.0f / 448.0f));
  const std::vector<float> zeros(1024, 0.0f);
  for (const DType dtype : {DType::kF8E8M0, DType::kF32, DType::kBF16}) {
    const HostMatrix m = encode_matrix(Format::kFp8Block32, 32, 32, zeros, dtype);
    EXPECT_EQ(scale_value(dtype, m.scales.data(), 0), 1.0f);
    EXPECT_EQ(decode(m), zeros);
  }
}

TEST(Formats, EncodingGridValuesIsExact) {
  for (const Format format : kFormats) {
    if (format == Format::kInt4G32 || format == Format::kInt4G128) continue;  // 7.5 is on no grid
    for (const std::int64_t rows : {1, 31, 33}) {
      const std::vector<float> once =
          decode(encode_matrix(format, rows, 160, normal_values(rows * 160, 5)));
      // The second time round NVFP4 must keep its global scale: the peak may have been rounded.
      if (format == Format::kNvfp4) {
        const HostMatrix m = encode_matrix(format, rows, 160, normal_values(rows * 160, 5));
        EXPECT_EQ(decode(encode_nvfp4(rows, 160, once, m.global_scale)), once);
        continue;
      }
      EXPECT_EQ(decode(encode_matrix(format, rows, 160, once)), once) << format_name(format);
    }
  }
}

TEST(Formats, RoundTripErrorOfGaussianValues) {
  // quantization.md 1.7, column Gaussian (there 2048 x 4096 values; here fewer, so 0.15 points).
  const std::int64_t rows = 256, cols = 1024;
  const std::vector<float> values = normal_values(rows * cols, 11);
  const auto error = [&](Format format, DType dtype) {
    const std::vector<float> found = decode(encode_matrix(format, rows, cols, values, dtype));
    double off = 0, norm = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      off += std::pow(static_cast<double>(found[i]) - values[i], 2);
      norm += std::pow(values[i], 2);
    }
    return 100.0 * std::sqrt(off / norm);
  };
  EXPECT_NEAR(error(Format::kMxfp4, DType::kF8E8M0), 11.54, 0.15);
  EXPECT_NEAR(error(Format::kNvfp4, DType::kF8E4M3), 9.51, 0.15);
  EXPECT_NEAR(error(Format::kInt4G32, DType::kBF16), 9.48, 0.15);
  EXPECT_NEAR(error(Format::kInt4G128, DType::kBF16), 11.07, 0.15);
  for (const Format format : {Format::kFp8Block128, Format::kFp8Block32})
    for (const DType dtype : {DType::kF8E8M0, DType::kF32})
      EXPECT_NEAR(error(format, dtype), 2.65, 0.05) << format_name(format, dtype);
}

TEST(Mxfp4, ThreeScaleRules) {
  const auto exponent = [](float amax, Mxfp4Rule rule) { return mxfp4_scale(amax, rule) - 127; };
  struct Row {
    float amax;
    int ceil, floor, rounded;
  };
  for (const Row row : {Row{6.0f, 0, 0, 0}, Row{6.5f, 1, 0, 0}, Row{7.0f, 1, 0, 1},
                        Row{7.99f, 1, 0, 1}, Row{8.0f, 1, 1, 1}, Row{4.0f, 0, 0, 0},
                        Row{3.5f, 0, -1, 0}, Row{3.0f, -1, -1, -1}, Row{12.0f, 1, 1, 1}}) {
    EXPECT_EQ(exponent(row.amax, Mxfp4Rule::kCeil), row.ceil) << row.amax;
    EXPECT_EQ(exponent(row.amax, Mxfp4Rule::kFloor), row.floor) << row.amax;
    EXPECT_EQ(exponent(row.amax, Mxfp4Rule::kRounded), row.rounded) << row.amax;
  }
  for (const Mxfp4Rule rule : {Mxfp4Rule::kFloor, Mxfp4Rule::kRounded}) {
    EXPECT_EQ(mxfp4_scale(0.0f, rule), 0);
    EXPECT_EQ(mxfp4_scale(0x1p-126f, rule), 0);
    EXPECT_EQ(mxfp4_scale(std::numeric_limits<float>::max(), rule),
              rule == Mxfp4Rule::kRounded ? 253 : 252);
    EXPECT_EQ(mxfp4_scale(std::numeric_limits<float>::infinity(), rule), kE8M0Nan);
  }
}

TEST(Mxfp4, RoundTripErrorOfTheThreeRules) {
  const std::vector<float> values = normal_values(131'072, 12);
  const auto error = [&](Mxfp4Rule rule) {
    std::vector<std::uint8_t> bytes(values.size() / 2), scales(values.size() / 32);
    std::vector<float> found(values.size());
    mxfp4_encode_row(values, bytes, scales, rule);
    mxfp4_decode_row(bytes, scales, found);
    double off = 0, norm = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      off += std::pow(static_cast<double>(found[i]) - values[i], 2);
      norm += std::pow(values[i], 2);
    }
    return 100.0 * std::sqrt(off / norm);
  };
  EXPECT_NEAR(error(Mxfp4Rule::kFloor), 11.50, 0.15);  // quantization.md 1.7
  EXPECT_NEAR(error(Mxfp4Rule::kCeil), 11.54, 0.15);
  EXPECT_NEAR(error(Mxfp4Rule::kRounded), 11.19, 0.15);
}

TEST(Formats, OnlyFp8AndMxfp4TakeFp8Activations) {
  for (const Format format : kFormats)
    EXPECT_EQ(traits(format).fp8_activations, format == Format::kFp8Block128 ||
                                                  format == Format::kFp8Block32 ||
                                                  format == Format::kMxfp4)
        << format_name(format);
}

TEST(Scale, EveryTypeKeepsWhatItStores) {
  std::byte bytes[16] = {};
  EXPECT_EQ(store_scale(DType::kF8E8M0, 3.0f, bytes, 1), 4.0f);
  EXPECT_EQ(store_scale(DType::kF8E4M3, 3.1f, bytes, 1), 3.0f);
  EXPECT_EQ(store_scale(DType::kF8E4M3, 1e-30f, bytes, 1), 0x1p-9f);
  EXPECT_EQ(store_scale(DType::kBF16, 1.00390625f, bytes, 1), 1.0f);
  EXPECT_EQ(store_scale(DType::kF16, 1e-30f, bytes, 1), 0x1p-24f);
  EXPECT_EQ(store_scale(DType::kF32, 0.1f, bytes, 1), 0.1f);
  EXPECT_EQ(scale_value(DType::kF32, bytes, 1), 0.1f);
  EXPECT_DEATH(scale_value(DType::kI32, bytes, 0), "I32");
}

}  // namespace
}  // namespace nibble::quant
