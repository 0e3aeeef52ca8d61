// Experts on Hopper: against the reference, and bit against bit in any company.
#include "ops/cuda/sm90_fixture.h"

namespace nibble::ops::cuda::testing {
namespace {

struct HostExpert {
  quant::HostMatrix w1, w3, w2;
};

class Sm90Experts : public Sm90 {
 protected:
  void make(std::int64_t d, std::int64_t inner, int experts, Format routed) {
    d_ = d, inner_ = inner;
    const auto one = [&](Format format) {
      return HostExpert{random_matrix(format, inner, d), random_matrix(format, inner, d),
                        random_matrix(format, d, inner)};
    };
    for (int e = 0; e < experts; ++e) host_.push_back(one(routed));
    host_.push_back(one(Format::kFp8Block128));  // the shared one
  }
  std::vector<ExpertWeights> upload(Backend& b) const {
    std::vector<ExpertWeights> out;
    for (const HostExpert& e : host_)
      out.push_back({b.upload(copy(e.w1)), b.upload(copy(e.w3)), b.upload(copy(e.w2))});
    return out;
  }
  void draw(std::int64_t n, std::int64_t k, float deviation) {
    k_ = k;
    x_ = normal(n * d_, deviation);
    for (std::int64_t i = 0; i < n * k; ++i) {
      weights_.push_back(0.1f + static_cast<float>(random_() % 1000) * 1e-3f);
      chosen_.push_back(static_cast<std::int32_t>(random_() % (host_.size() - 1)));
    }
  }
  Floats run(Backend& b, const std::vector<ExpertWeights>& w, std::int64_t first, std::int64_t n) {
    const auto part = [&](const auto& all, std::int64_t width) {
      return std::decay_t<decltype(all)>(all.begin() + first * width,
                                         all.begin() + (first + n) * width);
    };
    const tensor::View y = poisoned(b, {n, d_});
    b.routed_experts({put(b, part(x_, d_), {n, d_}), put(b, part(chosen_, k_), {n, k_}),
                      put(b, part(weights_, k_), {n, k_}), std::span(w).first(w.size() - 1),
                      w.back(), 10.0f, y});
    return floats_of(b, y);
  }

  std::int64_t d_ = 0, inner_ = 0, k_ = 0;
  std::vector<HostExpert> host_;
  Floats x_, weights_;
  Ints chosen_;
};

TEST_F(Sm90Experts, MatchTheReference) {
  for (const Format routed : {Format::kMxfp4, Format::kFp8Block128}) {
    host_.clear();
    make(1024, 512, 12, routed);
    const auto on_gpu = upload(*backend_), on_cpu = upload(reference_);
    ASSERT_EQ(on_gpu[0].w1.layout, Layout::kTiles);
    for (const std::int64_t n : {1, 2, 8, 9, 16, 17, 45, 64, 150, 300}) {
      weights_.clear(), chosen_.clear();
      draw(n, 3, 0.5f);
      const double off = distance(run(*backend_, on_gpu, 0, n), run(reference_, on_cpu, 0, n));
      std::printf("%s, %lld rows: relative L2 %.2e\n", quant::format_name(routed),
                  static_cast<long long>(n), off);
      EXPECT_LT(off, kExpertsBar) << n << " rows";
    }
  }
}

// Rows of w1 and w3 with one weight each: the hidden values have the same bits on both sides, so the bar is that of a product.
TEST_F(Sm90Experts, DownAloneMatchesTheReference) {
  make(1024, 1024, 6, Format::kMxfp4);
  for (HostExpert& e : host_)
    for (quant::HostMatrix* w : {&e.w1, &e.w3}) {
      Floats values(static_cast<std::size_t>(w->rows * w->cols), 0.0f);
      for (std::int64_t r = 0; r < w->rows; ++r)
        values[static_cast<std::size_t>(r * w->cols) + random_() % w->cols] = 1.0f;
      *w = quant::encode_matrix(w->format, w->rows, w->cols, values);
    }
  draw(40, 2, 2.0f);
  const double off = distance(run(*backend_, upload(*backend_), 0, 40),
                              run(reference_, upload(reference_), 0, 40));
  std::printf("down alone: relative L2 %.2e\n", off);
  EXPECT_LT(off, kProductBar);
}

TEST_F(Sm90Experts, FullShapeMatchesTheReferenceAndItselfInAnyCompany) {
  make(4096, 2048, 24, Format::kMxfp4);
  draw(256, 6, 0.2f);
  const auto w = upload(*backend_);
  const Floats all = run(*backend_, w, 0, 256);
  const double off = distance(Floats(all.begin(), all.begin() + 2 * d_),
                              run(reference_, upload(reference_), 0, 2));
  std::printf("V4-Flash shape: relative L2 %.2e\n", off);
  EXPECT_LT(off, kExpertsBar);
  for (int repeat = 0; repeat < 20; ++repeat)
    for (const std::int64_t n : {1, 2, 3, 7, 17, 64, 256}) {
      const auto first = static_cast<std::int64_t>(random_() % (256 - n + 1));
      const Floats some = run(*backend_, w, first, n);
      ASSERT_TRUE(same_bits(some.data(), all.data() + first * d_, n * d_))
          << n << " rows from " << first;
    }
}

// A row of NaN is its own.
TEST_F(Sm90Experts, ANanStaysInItsRow) {
  make(1024, 512, 5, Format::kMxfp4);
  draw(12, 2, 0.5f);
  const auto w = upload(*backend_);
  const Floats before = run(*backend_, w, 0, 12);
  x_[static_cast<std::size_t>(3 * d_ + 17)] = std::numeric_limits<float>::quiet_NaN();
  const Floats after = run(*backend_, w, 0, 12);
  for (std::int64_t t = 0; t < 12; ++t)
    EXPECT_EQ(same_bits(before.data() + t * d_, after.data() + t * d_, d_), t != 3) << t;
}

// Scales that differ by more than the layout holds leave a matrix as it was published, and the plain kernels serve it.
TEST_F(Sm90Experts, WideScalesAreServedAsPublished) {
  make(1024, 512, 3, Format::kMxfp4);
  host_[1].w1.scales.as<std::uint8_t>()[5] = 90;
  host_[1].w1.scales.as<std::uint8_t>()[6] = 110;
  draw(5, 2, 0.5f);
  const auto w = upload(*backend_);
  EXPECT_EQ(w[0].w1.layout, Layout::kTiles);
  EXPECT_EQ(w[1].w1.layout, Layout::kPublished);
  EXPECT_LT(distance(run(*backend_, w, 0, 5), run(reference_, upload(reference_), 0, 5)),
            kProductBar);
}

}  // namespace
}  // namespace nibble::ops::cuda::testing
