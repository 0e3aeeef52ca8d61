#include "sample/sampler.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

namespace nibble::sample {
namespace {

SamplingParams at(float temperature, float top_p = 1.0f, std::uint64_t seed = 0) {
  SamplingParams params;
  params.temperature = temperature;
  params.top_p = top_p;
  params.seed = seed;
  return params;
}

TEST(Sample, GreedyTakesTheLowestOfEquals) {
  const std::array<float, 5> logits = {-1.0f, 3.0f, 2.0f, 3.0f, -INFINITY};
  EXPECT_EQ(sample(logits, at(0.0f), 17).value(), 1);
}

TEST(Sample, NanAndAllMaskedAreErrors) {
  const std::array<float, 3> nan = {0.0f, NAN, 1.0f};
  const std::array<float, 2> masked = {-INFINITY, -INFINITY};
  for (const float temperature : {0.0f, 1.0f}) {
    EXPECT_EQ(sample(nan, at(temperature), 0).status().code, StatusCode::kInternal);
    EXPECT_EQ(sample(masked, at(temperature), 0).status().code, StatusCode::kInternal);
  }
}

TEST(Sample, FrequenciesFollowTheDistribution) {
  const std::array<float, 4> logits = {std::log(0.5f), std::log(0.1f), std::log(0.3f),
                                       std::log(0.1f)};
  std::array<int, 4> counts{};
  constexpr int kDraws = 40000;
  for (int i = 0; i < kDraws; ++i)
    counts[static_cast<std::size_t>(
        sample(logits, at(1.0f, 1.0f, 7), static_cast<std::uint64_t>(i)).value())]++;
  const std::array<double, 4> expected = {0.5, 0.1, 0.3, 0.1};
  for (std::size_t i = 0; i < 4; ++i) {
    // Five standard deviations of a binomial count.
    const double sigma = std::sqrt(kDraws * expected[i] * (1 - expected[i]));
    EXPECT_NEAR(counts[i], kDraws * expected[i], 5 * sigma) << "token " << i;
  }
}

TEST(Sample, TopPKeepsTheShortestPrefixThatReachesIt) {
  const std::array<float, 4> logits = {std::log(0.5f), std::log(0.1f), std::log(0.3f),
                                       std::log(0.1f)};
  for (int i = 0; i < 2000; ++i) {
    const auto position = static_cast<std::uint64_t>(i);
    EXPECT_EQ(sample(logits, at(1.0f, 0.4f), position).value(), 0);
    const TokenId two = sample(logits, at(1.0f, 0.7f), position).value();
    EXPECT_TRUE(two == 0 || two == 2) << two;
    EXPECT_NE(sample(logits, at(1.0f, 0.85f), position).value(),
              3);  // the lower of the two equals is kept
  }
}

TEST(Sample, DependsOnSeedAndPositionOnly) {
  std::array<float, 64> logits{};
  int differs = 0;
  for (std::uint64_t position = 0; position < 64; ++position) {
    const TokenId first = sample(logits, at(1.0f, 1.0f, 5), position).value();
    EXPECT_EQ(first, sample(logits, at(1.0f, 1.0f, 5), position).value());
    differs += first != sample(logits, at(1.0f, 1.0f, 6), position).value();
  }
  EXPECT_GT(differs, 48);
}

TEST(Logprobs, SumToOneAndComeBestFirst) {
  const std::array<float, 4> logits = {1.0f, 4.0f, 2.0f, 4.0f};
  const Logprobs result = logprobs(logits, 2, 4);
  ASSERT_EQ(result.top.size(), 4u);
  EXPECT_EQ(result.top[0].token, 1);
  EXPECT_EQ(result.top[1].token, 3);
  EXPECT_EQ(result.top[2].token, 2);
  EXPECT_EQ(result.top[2].logprob, result.chosen);
  double sum = 0;
  for (const TokenLogprob& entry : result.top) sum += std::exp(entry.logprob);
  EXPECT_NEAR(sum, 1.0, 1e-6);
}

}  // namespace
}  // namespace nibble::sample
