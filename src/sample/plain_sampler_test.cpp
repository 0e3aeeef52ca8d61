// `draw` against its specification, and the fast passes against plain ones.
#include <gtest/gtest.h>

#include <random>

#include "sample/adjust.h"
#include "sample/plain_sampler.h"
#include "sample/row_passes.h"
#include "sample/truncated_draw.h"

namespace nibble::sample {
namespace {

using Random = std::mt19937_64;

float between(Random& random, double low, double high) {
  return static_cast<float>(std::uniform_real_distribution<double>(low, high)(random));
}
std::size_t below(Random& random, std::size_t end) {
  return std::uniform_int_distribution<std::size_t>(0, end - 1)(random);
}
template <typename T, std::size_t N>
T one_of(Random& random, const T (&values)[N]) {
  return values[below(random, N)];
}

// Peaked, flat, on a coarse grid (ties), all equal, or with masked and far outlying logits.
std::vector<float> some_logits(Random& random, std::size_t vocab) {
  std::normal_distribution<float> normal(0.0f, one_of(random, {0.0f, 0.1f, 1.0f, 4.0f, 1e4f}));
  std::vector<float> row(vocab);
  for (float& logit : row) logit = normal(random);
  const std::size_t kind = below(random, 5);
  for (float& logit : row) {
    if (kind == 1) logit = std::round(logit * 4.0f) / 4.0f;
    if (kind == 2 && below(random, 3) == 0) logit = -INFINITY;
    if (kind == 3 && below(random, 9) == 0) logit = -1e30f;
    if (kind == 4 && below(random, vocab) < 3) logit += 12.0f;
  }
  row[below(random, vocab)] = 0.5f;  // at least one is left
  return row;
}

SamplingParams some_params(Random& random, std::size_t vocab) {
  const auto often_off = [&](float off, float value) { return below(random, 2) ? off : value; };
  SamplingParams params;
  params.temperature =
      one_of(random, {0.0f, 1e-40f, 1e-3f, 0.3f, 0.7f, 1.0f, 1.0f, 1.7f, 1e3f, 1e30f});
  params.top_p = one_of(random, {1.0f, 1.0f, 1.0f, 0.95f, 0.5f, 1e-6f, 0.999999f, 0.1f});
  params.top_k = one_of(random, {0, 0, 0, 1, 2, 20, static_cast<int>(vocab), 1 << 30});
  params.min_p = one_of(random, {0.0f, 0.0f, 0.0f, 0.05f, 0.9f, 1.0f, 1e-6f});
  params.presence_penalty = often_off(0.0f, between(random, -2, 2));
  params.frequency_penalty = often_off(0.0f, between(random, -2, 2));
  params.repetition_penalty = often_off(1.0f, between(random, 0.5, 2));
  for (std::size_t i = below(random, 4); i-- > 0;)
    params.logit_bias.emplace_back(static_cast<TokenId>(below(random, vocab)),
                                   one_of(random, {-100.0f, -3.0f, 0.25f, 5.0f}));
  params.seed = random();
  return params;
}

TEST(PlainSampler, DrawGivesTheSameTokens) {
  Random random(20260401);
  int errors = 0, greedy = 0;
  for (int round = 0; round < 3000; ++round) {
    const std::size_t vocab = one_of(random, {std::size_t{1}, std::size_t{7}, std::size_t{64},
                                              std::size_t{300}, std::size_t{3000}});
    const std::vector<float> logits = some_logits(random, vocab);
    const SamplingParams params = some_params(random, vocab);
    PlainSequence seen;
    for (std::size_t i = below(random, 40); i-- > 0;)
      seen.prompt.push_back(static_cast<TokenId>(below(random, vocab)));
    for (std::size_t i = below(random, 40); i-- > 0;)
      seen.generated.push_back(static_cast<TokenId>(below(random, vocab)));
    const std::size_t drafted = std::min<std::size_t>(below(random, 5), seen.generated.size());
    const std::size_t known = seen.generated.size() - drafted;
    TokenCounts counts;
    counts.add_prompt(seen.prompt);
    for (std::size_t i = 0; i < known; ++i) counts.add_generated(seen.generated[i]);
    std::vector<bool> allowed;
    std::vector<std::uint64_t> words;
    if (below(random, 4) == 0) {
      words.resize((vocab + 63) / 64);
      for (std::size_t i = 0; i < vocab; ++i) {
        allowed.push_back(below(random, 3) == 0);
        if (allowed[i]) words[i / 64] |= std::uint64_t{1} << (i % 64);
      }
    }
    const std::uint64_t position = below(random, 100000);
    const Draw draw_of{&params, position, &counts, std::span(seen.generated).subspan(known), words};
    const auto expected = plain_draw(logits, params, position, seen, allowed);
    const auto found = draw(logits, draw_of);
    ASSERT_EQ(found.ok(), expected.has_value()) << "round " << round;
    errors += !found.ok();
    greedy += params.temperature == 0.0f;
    if (found) {
      ASSERT_EQ(found->token, *expected)
          << "round " << round << ", vocabulary " << vocab << ", temperature " << params.temperature
          << ", top_p " << params.top_p << ", top_k " << params.top_k << ", min_p " << params.min_p;
    }
  }
  EXPECT_GT(errors, 10);  // all banned
  EXPECT_GT(greedy, 100);
}

// Sums that stand exactly where a cut or a target falls: the buckets must not answer.
TEST(PlainSampler, TiesOnTheEdgeOfTheNucleus) {
  SamplingParams params;
  params.top_p = 0.5f;
  for (const std::size_t vocab : {2048u, 4096u}) {
    const std::vector<float> logits(vocab, 3.25f);
    for (std::uint64_t position = 0; position < 200; ++position) {
      const TokenId token = draw(logits, {&params, position}).value().token;
      EXPECT_EQ(token, plain_draw(logits, params, position));
      EXPECT_LT(token, static_cast<TokenId>(vocab / 2));
    }
  }
}

// Random numbers within a rounding of where one token ends and the next begins, which sums in another order
// than the specification's would get wrong.
TEST(TruncatedDraw, TargetsOnTheEdgeOfAToken) {
  Random random(13);
  TruncatedDraw truncated;
  for (int round = 0; round < 6; ++round) {
    std::vector<float> row(1100);
    for (float& logit : row) logit = between(random, -3, 3);
    SamplingParams params;
    params.top_p = round % 2 == 0 ? 1.0f : 0.9f;
    std::vector<Ranked> sorted;
    for (const Ranked& entry : truncated.best(row, row.size(), -INFINITY)) sorted.push_back(entry);
    std::vector<double> sums;
    double mass = 0.0;
    for (const Ranked& entry : sorted)
      sums.push_back(mass += std::exp(static_cast<double>(entry.logit) -
                                      static_cast<double>(sorted[0].logit)));
    const auto cut = std::lower_bound(sums.begin(), sums.end() - 1, params.top_p * mass);
    for (auto sum = sums.begin(); sum < cut - 3; sum += 3)
      for (const double u : {std::nextafter(*sum / *cut, 0.0), *sum / *cut}) {
        const TokenId expected = truncated.from_sorted(sorted, params, u);
        ASSERT_EQ(truncated.draw(row, row_range(row), params, u), expected) << "round " << round;
      }
  }
}

TEST(PlainSampler, BigVocabulary) {
  Random random(7);
  for (int round = 0; round < 10; ++round) {
    const std::vector<float> logits = some_logits(random, 129280);
    SamplingParams params;
    params.temperature = one_of(random, {0.6f, 1.0f, 3.0f});
    params.top_p = one_of(random, {1.0f, 0.95f, 0.4f});
    params.min_p = one_of(random, {0.0f, 0.02f});
    params.top_k = one_of(random, {0, 0, 50});
    params.seed = random();
    EXPECT_EQ(draw(logits, {&params, 3}).value().token, plain_draw(logits, params, 3))
        << "round " << round;
  }
}

TEST(RowPasses, SameBitsForEveryProcessor) {
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx2")) GTEST_SKIP() << "no AVX2 here";
  Random random(11);
  for (const std::size_t vocab : {1u, 15u, 16u, 257u, 3000u}) {
    const std::vector<float> row = some_logits(random, vocab);
    const RowPasses &a = portable_passes(), &b = avx2_passes();
    const RowRange x = a.row_range(row), y = b.row_range(row);
    EXPECT_TRUE(x.top == y.top && x.lowest == y.lowest && x.nan == y.nan);
    EXPECT_EQ(a.next_at_least(row, 0, x.top), b.next_at_least(row, 0, x.top));
    EXPECT_EQ(a.count_at_least(row, 0.0f), b.count_at_least(row, 0.0f));
    EXPECT_EQ(a.exp_sum(row, x.top), b.exp_sum(row, x.top));
    const BucketRule rule{x.top, -1.0f, 100.0f, 1.3};
    std::vector<std::uint16_t> p(vocab), q(vocab);
    std::array<double, kBuckets + 1> m, n;
    a.fill_buckets(row, rule, p, m);
    b.fill_buckets(row, rule, q, n);
    EXPECT_EQ(p, q);
    EXPECT_EQ(m, n);
  }
#else
  GTEST_SKIP() << "one kind of processor only";
#endif
}

// The bound that the buckets' error margin is built on.
TEST(RowPasses, ExponentialIsAccurate) {
  for (double x = 0.0; x > -699.0; x -= 0.0137) {
    const float logit = static_cast<float>(x);
    const double exact = std::exp(static_cast<double>(logit));
    EXPECT_NEAR(exp_sum(std::span(&logit, 1), 0.0f), exact, 2e-12 * exact) << x;
  }
  const float masked = -INFINITY, top = 4.0f;
  EXPECT_LT(exp_sum(std::span(&masked, 1), 0.0f), 1e-300);
  EXPECT_EQ(exp_sum(std::span(&top, 1), 4.0f), 1.0);
}

TEST(TruncatedDraw, BestAreTheSortedFirst) {
  Random random(5);
  TruncatedDraw truncated;
  for (int round = 0; round < 300; ++round) {
    std::vector<float> row = some_logits(random, 1 + below(random, 900));
    if (round % 3 == 0) std::sort(row.begin(), row.end());  // every token beats those before it
    std::vector<Ranked> expected;
    for (std::size_t i = 0; i < row.size(); ++i)
      if (row[i] > -INFINITY) expected.push_back({row[i], static_cast<TokenId>(i)});
    std::sort(expected.begin(), expected.end());
    const std::size_t count = below(random, row.size() + 1);
    expected.resize(std::min(count, expected.size()));
    const auto found = truncated.best(row, count, -INFINITY);
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i)
      ASSERT_EQ(found[i].token, expected[i].token) << "rank " << i << ", round " << round;
  }
}

}  // namespace
}  // namespace nibble::sample
