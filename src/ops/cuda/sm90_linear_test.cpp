// Matrices and the router on Hopper: against the reference, and bit against bit in any company.
#include "ops/cuda/sm90_fixture.h"

namespace nibble::ops::cuda::testing {
namespace {

struct LinearShape {
  const char* what;
  Format format;
  std::int64_t rows, cols;
  int groups;
  bool quantize, round;
};
// The matrices of V4-Flash that these kernels serve, and small ones with one, three and five stages.
const LinearShape kLinears[] = {
    {"small fp8", Format::kFp8Block128, 128, 512, 1, true, true},
    {"small fp8, fp32 out", Format::kFp8Block128, 192, 1536, 1, true, false},
    {"small fp8 x bf16", Format::kFp8Block128, 64, 2560, 1, false, false},
    {"small bf16", Format::kBF16, 64, 768, 1, false, false},
    {"small groups", Format::kFp8Block128, 256, 512, 4, false, true},
    {"bf16 groups", Format::kBF16, 192, 256, 3, false, true},
    {"wq_a", Format::kFp8Block128, 1024, 4096, 1, true, true},
    {"wkv", Format::kFp8Block128, 512, 4096, 1, true, true},
    {"wq_b", Format::kFp8Block128, 32768, 1024, 1, true, true},
    {"wo_a", Format::kFp8Block128, 8192, 4096, 8, false, true},
    {"wo_b", Format::kFp8Block128, 4096, 8192, 1, true, true},
    {"compressor", Format::kBF16, 1024, 4096, 1, false, false},
    {"gate", Format::kBF16, 256, 4096, 1, false, false},
    {"weights_proj", Format::kBF16, 64, 4096, 1, false, true},
    {"part of the head", Format::kBF16, 12800, 4096, 1, false, false},
};

TEST_F(Sm90, LinearsMatchTheReferenceAndThemselvesInAnyCompany) {
  for (const LinearShape& s : kLinears) {
    SCOPED_TRACE(s.what);
    ASSERT_EQ(backend_
                  ->kernel(s.groups > 1 ? OpKind::kGroupedLinear : OpKind::kLinear, s.format,
                           s.rows, s.cols)
                  .unit,
              "tensor core");
    const quant::HostMatrix host = random_matrix(s.format, s.rows, s.cols);
    const std::int64_t width = s.groups * s.cols, most = 40;
    const Floats x = normal(most * width, 1.5f);
    const auto run = [&](Backend& b, const Matrix& w, std::int64_t first, std::int64_t n) {
      const Floats rows(x.begin() + first * width, x.begin() + (first + n) * width);
      const tensor::View y = poisoned(b, {n, s.rows}), in = put(b, rows, {n, width});
      if (s.groups > 1)
        b.grouped_linear({in, w, s.groups, y});
      else
        b.linear({in, w, y, s.quantize, s.round});
      return floats_of(b, y);
    };
    const Matrix tiles = backend_->upload(copy(host));
    ASSERT_EQ(tiles.layout, Layout::kTiles);
    const Floats all = run(*backend_, tiles, 0, most);
    const std::int64_t compared = s.rows * s.cols > 1 << 20 ? 2 : most;
    const double off = distance(Floats(all.begin(), all.begin() + compared * s.rows),
                                run(reference_, reference_.upload(copy(host)), 0, compared));
    std::printf("%-20s relative L2 %.2e\n", s.what, off);
    EXPECT_LT(off, kProductBar);
    for (int repeat = 0; repeat < 4; ++repeat)
      for (const std::int64_t n : {1, 2, 3, 7, 8, 9, 16, 17, 33}) {
        const auto first = static_cast<std::int64_t>(random_() % (most - n + 1));
        const Floats some = run(*backend_, tiles, first, n);
        EXPECT_TRUE(same_bits(some.data(), all.data() + first * s.rows, n * s.rows))
            << n << " rows from " << first;
      }
  }
}

// y is x as FP8 rounds it: every channel has its place, and the quantizer is that of the reference.
TEST_F(Sm90, IdentityGivesTheRoundedInput) {
  const std::int64_t d = 1024, n = 19;
  Floats identity(static_cast<std::size_t>(d * d), 0.0f);
  for (std::int64_t i = 0; i < d; ++i) identity[static_cast<std::size_t>(i * (d + 1))] = 1.0f;
  for (const Format format : {Format::kFp8Block128, Format::kBF16})
    for (const bool quantize : {true, false}) {
      Floats x = normal(n * d, 1.0f);
      for (float& v : x) v = std::ldexp(v, static_cast<int>(random_() % 17) - 8);
      const auto run = [&](Backend& b) {
        const tensor::View y = poisoned(b, {n, d});
        b.linear({put(b, x, {n, d}), b.upload(quant::encode_matrix(format, d, d, identity)), y,
                  quantize, false});
        return floats_of(b, y);
      };
      const Floats found = run(*backend_), expected = run(reference_);
      EXPECT_EQ(distance(found, expected), 0.0) << quant::format_name(format) << quantize;
    }
}

// The plain kernels read tiles: embed is one of them.
TEST_F(Sm90, TilesDecodeToWhatWasUploaded) {
  for (const Format format : {Format::kMxfp4, Format::kFp8Block128, Format::kBF16}) {
    const quant::HostMatrix host = random_matrix(format, 192, 1536);
    std::vector<TokenId> ids(192);
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<TokenId>(i);
    const auto run = [&](Backend& b) {
      const tensor::View out = poisoned(b, {192, 1, 1536});
      b.embed({ids, b.upload(copy(host)), out});
      return floats_of(b, out);
    };
    EXPECT_EQ(distance(run(*backend_), run(reference_)), 0.0) << quant::format_name(format);
  }
}

TEST_F(Sm90, RouterMatchesTheReference) {
  const std::int64_t d = 4096, experts = 256, k = 6, n = 50;
  const quant::HostMatrix gate = random_matrix(Format::kBF16, experts, d);
  const Floats x = normal(n * d, 1.0f), bias = normal(experts, 0.1f);
  Ints table;
  for (int i = 0; i < 30 * k; ++i) table.push_back(static_cast<std::int32_t>(random_() % experts));
  std::vector<TokenId> ids;
  for (int i = 0; i < n; ++i) ids.push_back(static_cast<TokenId>(random_() % 30));
  for (const bool hash : {false, true}) {
    const auto run = [&](Backend& b, Ints& chosen) {
      const tensor::View out = put(b, Ints(static_cast<std::size_t>(n * k), -1), {n, k}),
                         weights = poisoned(b, {n, k});
      b.route({put(b, x, {n, d}), b.upload(copy(gate)),
               hash ? tensor::View{} : put(b, bias, {experts}),
               hash ? put(b, table, {30, k}) : tensor::View{}, ids, 1.5f, out, weights});
      chosen.resize(static_cast<std::size_t>(n * k));
      b.download(out, std::as_writable_bytes(std::span(chosen)));
      return floats_of(b, weights);
    };
    Ints found, expected;
    const Floats weights = run(*backend_, found), expected_weights = run(reference_, expected);
    EXPECT_EQ(found, expected) << (hash ? "hash" : "scores");
    EXPECT_LT(distance(weights, expected_weights), 1e-5);
  }
}

}  // namespace
}  // namespace nibble::ops::cuda::testing
