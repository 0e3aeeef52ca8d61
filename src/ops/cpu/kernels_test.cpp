// The kernels by themselves: every Isa gives the same bits, the roundings are the reference's, exp is
// accurate, and panels hold what was published.
#include "ops/cpu/kernels.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "nibble/status.h"
#include "ops/ref/rounding.h"
#include "quant/mxfp4.h"

namespace nibble::ops::cpu {
namespace {

using Floats = std::vector<float>;

Floats normal(std::mt19937& random, std::int64_t count, float deviation = 1.0f) {
  std::normal_distribution<float> draw(0.0f, deviation);
  Floats out(static_cast<std::size_t>(count));
  for (float& x : out) x = draw(random);
  return out;
}

std::uint32_t bits(float x) {
  return std::bit_cast<std::uint32_t>(x);
}

// Same bits, except that any NaN equals any other.
void expect_same(const Floats& a, const Floats& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    ASSERT_EQ(bits(a[i]), bits(b[i])) << what << " at " << i << ": " << a[i] << " and " << b[i];
  }
}

// The floats where rounding has its edges: all exponents, ties, infinities, NaN, subnormals.
Floats edges() {
  Floats out;
  for (std::uint32_t exponent = 0; exponent < 256; ++exponent)
    for (const std::uint32_t mantissa :
         {0u, 1u, 0x7FFFu, 0x8000u, 0x8001u, 0x18000u, 0x7FFFFu, 0x80000u, 0x80001u, 0x180000u,
          0x1FFFFFu, 0x200000u, 0x200001u, 0x3FFFFFu, 0x400000u, 0x600000u, 0x7FFFFFu})
      for (const std::uint32_t sign : {0u, 0x80000000u})
        out.push_back(std::bit_cast<float>(sign | (exponent << 23) | mantissa));
  return out;
}

// Every format with every type its scales may have.
std::vector<std::pair<quant::Format, tensor::DType>> formats_and_scales() {
  using tensor::DType;
  std::vector<std::pair<quant::Format, DType>> all;
  for (const quant::Format format : quant::kFormats) {
    if (quant::traits(format).block_cols == 0) all.emplace_back(format, DType::kF8E8M0);
    for (const DType dtype :
         {DType::kF8E8M0, DType::kF8E4M3, DType::kBF16, DType::kF16, DType::kF32})
      if (quant::allows_scale_dtype(format, dtype)) all.emplace_back(format, dtype);
  }
  return all;
}

// Each Isa of this processor.
class EveryIsa : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (GetParam() == Isa::kAvx2 && detect_isa() != Isa::kAvx2) GTEST_SKIP() << "no AVX2 here";
  }
  const Kernels& k() const { return kernels(GetParam()); }
  std::mt19937 random_{20260728};
};
INSTANTIATE_TEST_SUITE_P(Isa, EveryIsa, ::testing::Values(Isa::kPortable, Isa::kAvx2),
                         [](const auto& param) {
                           return param.param == Isa::kAvx2 ? "Avx2" : "Portable";
                         });

TEST_P(EveryIsa, RoundsToBf16AsTheReference) {
  Floats x = edges(), y = x;
  k().round_bf16(x.data(), static_cast<std::int64_t>(x.size()));
  ref::bf16_round(y.data(), static_cast<std::int64_t>(y.size()));
  for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(bits(x[i]), bits(y[i])) << edges()[i];
}

TEST_P(EveryIsa, RoundsToFp8AsTheReference) {
  for (const std::int64_t n : {0, 1, 7, 8, 100, 128, 129, 300})
    for (const float size : {1e-12f, 1e-5f, 1e-2f, 1.0f, 447.9f, 448.1f, 1e6f, 1e30f}) {
      Floats x = normal(random_, n, size);
      for (std::size_t i = 0; i < x.size(); i += 3)
        x[i] *= std::ldexp(1.0f, -static_cast<int>(i % 20));
      Floats y = x;
      k().round_fp8(x.data(), n, 128);
      ref::fp8_round_blocks(y.data(), n, 128);
      expect_same(x, y, "fp8 of size " + std::to_string(size));
    }
  // Every edge beside a value that fixes the scale.
  for (const float anchor : {1e-4f, 0.5f, 448.0f, 450.0f, 3.0f}) {
    for (const float edge : edges()) {
      if (!(std::fabs(edge) <= anchor)) continue;
      Floats x(9, edge), y;
      x[3] = anchor;
      y = x;
      k().round_fp8(x.data(), 9, 128);
      ref::fp8_round_blocks(y.data(), 9, 128);
      expect_same(x, y, "fp8 of " + std::to_string(edge));
    }
  }
}

TEST_P(EveryIsa, RoundsToFp4AsTheReference) {
  for (const float size : {0.0f, 1e-38f, 1e-12f, 0.3f, 1.0f, 6.0f, 1e30f}) {
    Floats x = normal(random_, 320, size), y = x;
    k().round_fp4(x.data(), 320);
    ref::fp4_round_blocks(y.data(), 320);
    expect_same(x, y, "fp4 of size " + std::to_string(size));
  }
  for (const float edge : edges()) {
    if (!(std::fabs(edge) <= 6.0f)) continue;
    Floats x(32, edge), y;
    x[5] = 6.0f;
    y = x;
    k().round_fp4(x.data(), 32);
    ref::fp4_round_blocks(y.data(), 32);
    expect_same(x, y, "fp4 of " + std::to_string(edge));
  }
}

TEST_P(EveryIsa, RotatesAsTheReference) {
  for (const std::int64_t n : {2, 4, 8, 64, 128, 1024}) {
    Floats x = normal(random_, n), y = x;
    k().hadamard(x.data(), n);
    ref::hadamard(y.data(), n);
    expect_same(x, y, "hadamard of " + std::to_string(n));
  }
}

TEST_P(EveryIsa, StoresAndLoadsRowsAsTheReference) {
  for (const auto& [format, width] : {std::pair{RowFormat::kF32, 77},
                                      {RowFormat::kBf16, 77},
                                      {RowFormat::kBf16, 512},
                                      {RowFormat::kFp8Nope, 512},
                                      {RowFormat::kFp8Nope, 77},
                                      {RowFormat::kFp8Nope, 200},
                                      {RowFormat::kFp4Index, 128},
                                      {RowFormat::kFp4Index, 32}}) {
    RowPool a{nullptr, format, width, 1, 1}, b = a;
    std::vector<std::byte> a_bytes(static_cast<std::size_t>(a.bytes())), b_bytes = a_bytes;
    a.data = a_bytes.data();
    b.data = b_bytes.data();
    for (const float size : {1e-6f, 1.0f, 3e4f}) {
      Floats x = normal(random_, width, size);
      for (std::size_t i = 0; i < x.size(); i += 3)
        x[i] *= std::ldexp(1.0f, -static_cast<int>(i % 20));
      k().store_row(format, width, x.data(), a.data);
      ref::store_row(format, width, x.data(), b.data);
      ASSERT_EQ(a_bytes, b_bytes) << static_cast<int>(format) << " width " << width;
      Floats loaded(x.size()), expected(x.size());
      k().load_row(format, width, a.data, loaded.data());
      ref::load_row(format, width, b.data, expected.data());
      expect_same(loaded, expected, "row");
    }
  }
}

TEST_P(EveryIsa, LoadsEveryCodeOfARow) {
  // All E4M3 codes, NaN included, in blocks with different scales.
  RowPool pool{nullptr, RowFormat::kFp8Nope, 256 + 64, 1, 1};
  std::vector<std::byte> bytes(static_cast<std::size_t>(pool.bytes()));
  pool.data = bytes.data();
  for (std::size_t i = 0; i < 256; ++i) bytes[i] = static_cast<std::byte>(i);
  const std::uint8_t scales[4] = {127, 120, 1, 200};
  std::memcpy(bytes.data() + 256 + 128, scales, 4);
  Floats loaded(320), expected(320);
  k().load_row(pool.format, pool.width, pool.data, loaded.data());
  ref::load_row(pool.format, pool.width, pool.data, expected.data());
  expect_same(loaded, expected, "codes");
  EXPECT_TRUE(std::isnan(loaded[0x7F]) && std::isnan(loaded[0xFF]));
}

TEST_P(EveryIsa, ExpIsWithinAUnitInTheLastPlace) {
  // Every 2003rd float from -104 to 89.
  double worst = 0.0;
  for (std::uint32_t pattern = 0; pattern < 0xFF000000u; pattern += 2003) {
    const float x = std::bit_cast<float>(pattern);
    if (!(x >= -104.0f && x <= 88.7f)) continue;
    float y = x;
    k().exp(&y, 1);
    const double exact = std::exp(static_cast<double>(x));
    const double unit = std::ldexp(1.0, std::max(std::ilogb(exact), -126) - 23);
    const double off = std::fabs(y - exact) / unit;
    if (off > worst) worst = off;
    ASSERT_LT(off, 1.0) << x << ": " << y << ", exactly " << exact;
  }
  EXPECT_GT(worst, 0.4);  // it was measured at all
  Floats special{0.0f,
                 -0.0f,
                 std::numeric_limits<float>::infinity(),
                 -std::numeric_limits<float>::infinity(),
                 std::nanf(""),
                 -1000.0f,
                 1000.0f};
  k().exp(special.data(), 7);
  EXPECT_EQ(special[0], 1.0f);
  EXPECT_EQ(special[1], 1.0f);
  EXPECT_EQ(special[2], std::numeric_limits<float>::infinity());
  EXPECT_EQ(special[3], 0.0f);
  EXPECT_TRUE(std::isnan(special[4]));
  EXPECT_EQ(special[5], 0.0f);
  EXPECT_EQ(special[6], std::numeric_limits<float>::infinity());
}

TEST_P(EveryIsa, PanelsHoldThePublishedMatrix) {
  using quant::Format;
  for (const auto& [format, scale_dtype] : formats_and_scales()) {
    const std::int64_t rows = 333, cols = 256;
    const quant::HostMatrix published =
        quant::encode_matrix(format, rows, cols, normal(random_, rows * cols), scale_dtype);
    const quant::HostMatrix packed = pack_panels(published);
    const Matrix m{format,
                   rows,
                   cols,
                   packed.data.data(),
                   packed.scales.data(),
                   packed.scale_dtype,
                   packed.global_scale};
    // A unit vector for each column picks it out.
    for (std::int64_t c = 0; c < cols; ++c) {
      Floats x(static_cast<std::size_t>(cols), 0.0f);
      x[static_cast<std::size_t>(c)] = 1.0f;
      for (std::int64_t p = 0; p < panel_count(rows); ++p) {
        const float* input = x.data();
        float column[kPanelRows];
        k().panel(panel_of(m, p), &input, 1, column);
        for (int lane = 0; lane < kPanelRows; ++lane) {
          const std::int64_t r = p * kPanelRows + lane;
          Floats row(static_cast<std::size_t>(cols));
          if (r < rows) quant::decode_row(published, r, row);
          ASSERT_EQ(column[lane], row[static_cast<std::size_t>(c)])
              << quant::format_name(format, scale_dtype) << " row " << r << " column " << c;
        }
      }
    }
  }
}

TEST_P(EveryIsa, PanelsDecodeEveryCode) {
  // FP8: all codes but NaN; FP4: all codes with all scales that stay finite.
  const auto check = [&](const quant::HostMatrix& published) {
    const quant::HostMatrix packed = pack_panels(published);
    const Matrix m{published.format,     published.rows,     published.cols,     packed.data.data(),
                   packed.scales.data(), packed.scale_dtype, packed.global_scale};
    for (std::int64_t c = 0; c < m.cols; ++c) {
      Floats x(static_cast<std::size_t>(m.cols), 0.0f);
      x[static_cast<std::size_t>(c)] = 1.0f;
      const float* inputs[2] = {x.data(), x.data()};
      float column[2 * kPanelRows];
      for (std::int64_t r = 0; r < m.rows; ++r) {
        Floats row(static_cast<std::size_t>(m.cols));
        quant::decode_row(published, r, row);
        k().panel(panel_of(m, r / kPanelRows), inputs, 1, column);
        ASSERT_EQ(column[r % kPanelRows], row[static_cast<std::size_t>(c)]) << r << " " << c;
        k().panel(panel_of(m, r / kPanelRows), inputs, 2, column);
        ASSERT_EQ(column[kPanelRows + r % kPanelRows], row[static_cast<std::size_t>(c)]);
      }
    }
  };
  quant::HostMatrix fp8 = quant::make_host_matrix(quant::Format::kFp8Block128, 8, 32);
  for (std::size_t i = 0; i < 256; ++i)
    fp8.data.data()[i] = static_cast<std::byte>((i & 0x7F) == 0x7F ? 0 : i);
  for (const std::uint8_t scale : {0, 1, 100, 127, 246}) {
    *fp8.scales.as<std::uint8_t>() = scale;
    check(fp8);
  }
  quant::HostMatrix fp4 = quant::make_host_matrix(quant::Format::kMxfp4, 253, 32);
  for (std::int64_t r = 0; r < 253; ++r) {
    for (int i = 0; i < 16; ++i)
      fp4.data.data()[r * 16 + i] = static_cast<std::byte>((i * 17 + r * 3) & 0xFF);
    fp4.scales.as<std::uint8_t>()[r] = static_cast<std::uint8_t>(r);
  }
  check(fp4);
  // NVFP4: all codes with all scales but NaN; INT4: all codes.
  quant::HostMatrix nvfp4 = quant::make_host_matrix(quant::Format::kNvfp4, 127, 16);
  nvfp4.global_scale = 0.37f;
  for (std::int64_t r = 0; r < 127; ++r) {
    for (int i = 0; i < 8; ++i)
      nvfp4.data.data()[r * 8 + i] = static_cast<std::byte>((2 * i | (2 * i + 1) << 4) ^ (r & 0xF));
    nvfp4.scales.as<std::uint8_t>()[r] = static_cast<std::uint8_t>(r);
  }
  check(nvfp4);
  for (const auto& [format, scale_dtype] : formats_and_scales()) {
    if (format != quant::Format::kInt4G32 && format != quant::Format::kInt4G128) continue;
    quant::HostMatrix int4 =
        quant::encode_matrix(format, 48, 128, normal(random_, 48 * 128), scale_dtype);
    for (std::size_t i = 0; i < int4.data.size(); ++i)
      int4.data.data()[i] = static_cast<std::byte>((i * 17 + i / 64) & 0xFF);
    check(int4);
  }
}

TEST(Panels, RefuseNan) {
  quant::HostMatrix fp8 = quant::encode_matrix(quant::Format::kFp8Block128, 3, 5, Floats(15, 1.0f));
  fp8.data.data()[7] = std::byte{0xFF};
  EXPECT_THROW(pack_panels(fp8), CheckpointError);
  quant::HostMatrix fp4 = quant::encode_matrix(quant::Format::kMxfp4, 2, 32, Floats(64, 1.0f));
  fp4.scales.as<std::uint8_t>()[1] = 0xFF;
  EXPECT_THROW(pack_panels(fp4), CheckpointError);
  for (const std::uint8_t scale : {0x7F, 0xFF, 0x81, 0x80}) {
    quant::HostMatrix nvfp4 = quant::encode_matrix(quant::Format::kNvfp4, 2, 32, Floats(64, 1.0f));
    nvfp4.scales.as<std::uint8_t>()[3] = scale;
    EXPECT_THROW(pack_panels(nvfp4), CheckpointError);
  }
  quant::HostMatrix int4 = quant::encode_matrix(quant::Format::kInt4G32, 2, 32, Floats(64, 1.0f));
  int4.scales.as<std::uint16_t>()[1] = 0x7F80;  // infinity
  EXPECT_THROW(pack_panels(int4), CheckpointError);
}

// One token alone and among others, in each place.
TEST_P(EveryIsa, PanelsDoNotSeeTheOtherTokens) {
  using quant::Format;
  for (const Format format : quant::kFormats) {
    // Whole groups where there must be, else a partial block at the end.
    const std::int64_t cols = quant::traits(format).bits == 4 ? 384 : 301;
    const quant::HostMatrix packed =
        pack_panels(quant::encode_matrix(format, 32, cols, normal(random_, 32 * cols)));
    const Matrix m{format,
                   32,
                   cols,
                   packed.data.data(),
                   packed.scales.data(),
                   packed.scale_dtype,
                   packed.global_scale};
    const Floats x = normal(random_, kTokenTile * cols);
    std::vector<const float*> inputs;
    for (std::int64_t t = 0; t < kTokenTile; ++t) inputs.push_back(x.data() + t * cols);
    Floats alone(static_cast<std::size_t>(kTokenTile * kPanelRows));
    for (std::int64_t t = 0; t < kTokenTile; ++t)
      k().panel(panel_of(m, 0), inputs.data() + t, 1, alone.data() + t * kPanelRows);
    for (const std::int64_t n : {2, 3, 4, 5, 96}) {
      Floats together(alone.begin(), alone.begin() + n * kPanelRows), out(together.size());
      k().panel(panel_of(m, 0), inputs.data(), n, out.data());
      expect_same(out, together,
                  std::string(quant::format_name(format)) + " n=" + std::to_string(n));
    }
  }
}

// Everything a kernel writes, for a given Isa, from the same inputs.
std::vector<std::pair<std::string, Floats>> results(const Kernels& k) {
  std::mt19937 random(7);
  std::vector<std::pair<std::string, Floats>> out;
  for (const std::int64_t n : {1, 5, 8, 13, 16, 31, 64, 130, 512}) {
    const std::string name = " n=" + std::to_string(n);
    const std::int64_t rows = 7;
    const Floats a = normal(random, rows * n), b = normal(random, n), c = normal(random, n);
    Floats dots(rows * 2);
    k.dots(a.data(), n, rows, b.data(), n, dots.data(), 2);
    out.emplace_back("dots" + name, dots);
    out.emplace_back("sums" + name,
                     Floats{k.sum_squares(a.data(), n), k.sum_squares_bf16(a.data(), n),
                            k.max(a.data(), n, 0.3f), k.max(a.data(), n, 100.0f)});
    Floats soft = a;
    soft.push_back(k.exp_sum(soft.data(), n, 2.5f));
    out.emplace_back("exp_sum" + name, soft);
    std::vector<const float*> pointers;
    for (std::int64_t r = 0; r < rows; ++r) pointers.push_back(a.data() + r * n);
    const Floats p = normal(random, 6 * rows);
    Floats sums(static_cast<std::size_t>(6 * n));
    k.weighted_sum(pointers.data(), rows, p.data(), rows, 6, 0, n, sums.data(), n);
    out.emplace_back("weighted_sum" + name, sums);
    Floats entry(static_cast<std::size_t>(n));
    const std::vector<const float*> gates(pointers.rbegin(), pointers.rend());
    k.pool(pointers.data(), gates.data(), rows, n, entry.data());
    out.emplace_back("pool" + name, entry);
    Floats y = b;
    k.scale(y.data(), 1.7f, c.data(), n, y.data());
    k.divide(y.data(), 3.3f, n);
    k.add(c.data(), n, y.data());
    out.emplace_back("scale, divide, add" + name, y);
    if (n % 2 == 0) {
      k.rotate(y.data(), b.data(), c.data(), n);
      out.emplace_back("rotate" + name, y);
    }
    for (const bool release : {false, true}) {
      Floats gate = b, streams(a.begin(), a.begin() + 4 * n), collapsed = b;
      k.swiglu(gate.data(), c.data(), 0.7f, 0.9f, n, release);
      const Floats post = normal(random, 4), comb = normal(random, 16);
      k.expand(streams.data(), b.data(), post.data(), comb.data(), 4, n, release);
      k.collapse(streams.data(), post.data(), 4, n, release, collapsed.data());
      out.emplace_back("swiglu" + name, gate);
      out.emplace_back("expand" + name, streams);
      out.emplace_back("collapse" + name, collapsed);
    }
    const Floats head_weights = normal(random, 5);
    Floats scores(static_cast<std::size_t>(rows));
    k.index_scores(a.data(), 5, n, head_weights.data(), a.data(), rows, scores.data());
    out.emplace_back("index_scores" + name, scores);
  }
  using quant::Format;
  for (const Format format : quant::kFormats) {
    const std::int64_t cols = 384;
    const quant::HostMatrix packed =
        pack_panels(quant::encode_matrix(format, 32, cols, normal(random, 32 * cols)));
    const Matrix m{format,
                   32,
                   cols,
                   packed.data.data(),
                   packed.scales.data(),
                   packed.scale_dtype,
                   packed.global_scale};
    const Floats x = normal(random, 7 * cols);
    std::vector<const float*> inputs;
    for (std::int64_t t = 0; t < 7; ++t) inputs.push_back(x.data() + t * cols);
    for (const std::int64_t n : {1, 2, 3, 7}) {
      Floats y(static_cast<std::size_t>(n * kPanelRows));
      k.panel(panel_of(m, 0), inputs.data(), n, y.data());
      out.emplace_back(std::string("panel ") + quant::format_name(format), y);
    }
  }
  return out;
}

TEST(Kernels, GiveTheSameBitsOnEveryIsa) {
  if (detect_isa() == Isa::kPortable) GTEST_SKIP() << "only the portable kernels run here";
  const auto fast = results(kernels(detect_isa())), portable = results(kernels(Isa::kPortable));
  ASSERT_EQ(fast.size(), portable.size());
  for (std::size_t i = 0; i < fast.size(); ++i)
    expect_same(fast[i].second, portable[i].second, fast[i].first);
}

}  // namespace
}  // namespace nibble::ops::cpu
