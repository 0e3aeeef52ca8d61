#include "sample/sampler.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <map>

namespace nibble::sample {
namespace {

SamplingParams at(float temperature, float top_p = 1.0f, std::uint64_t seed = 0) {
  SamplingParams params;
  params.temperature = temperature;
  params.top_p = top_p;
  params.seed = seed;
  return params;
}

TokenId token(std::span<const float> logits, const SamplingParams& params, std::uint64_t position) {
  return draw(logits, {&params, position}).value().token;
}

Status error(std::span<const float> logits, const SamplingParams& params,
             std::span<const std::uint64_t> allowed = {}) {
  Draw one{&params};
  one.allowed = allowed;
  const auto result = draw(logits, one);
  EXPECT_FALSE(result.ok());
  return result.ok() ? Status{} : result.status();
}

TEST(Draw, GreedyTakesTheLowestOfEquals) {
  const std::array<float, 5> logits = {-1.0f, 3.0f, 2.0f, 3.0f, -INFINITY};
  EXPECT_EQ(token(logits, at(0.0f), 17), 1);
}

TEST(Draw, ErrorsSayWhatIsWrong) {
  const std::array<float, 3> nan = {0.0f, NAN, 1.0f}, infinite = {0.0f, INFINITY, 1.0f},
                             fine = {0.0f, 2.0f, 1.0f};
  const std::array<float, 2> masked = {-INFINITY, -INFINITY};
  const std::array<std::uint64_t, 1> none = {0}, all = {7};
  for (const float temperature : {0.0f, 1.0f}) {
    SamplingParams params = at(temperature);
    EXPECT_EQ(error(nan, params).code, StatusCode::kInternal);
    EXPECT_EQ(error(nan, params).message, "the model's output holds a NaN");
    EXPECT_EQ(error(infinite, params).message, "the model's output holds an infinite logit");
    EXPECT_EQ(error(masked, params).message, "the model's output holds no finite logit");
    EXPECT_EQ(error(masked, params).code, StatusCode::kInternal);
    // A masked NaN is as broken.
    EXPECT_EQ(error(nan, params, all).code, StatusCode::kInternal);
    EXPECT_EQ(error(fine, params, none).code, StatusCode::kInvalidArgument);
    EXPECT_NE(error(fine, params, none).message.find("no token may be drawn"), std::string::npos);
    params.logit_bias = {{0, -100.0f}, {1, -100.0f}, {2, -250.0f}};
    EXPECT_EQ(error(fine, params).code, StatusCode::kInvalidArgument);
    params.logit_bias = {{3, 1.0f}};
    EXPECT_EQ(error(fine, params).param, "logit_bias");
    EXPECT_EQ(error(fine, params).message, "logit_bias: token 3; the vocabulary has 3");
  }
}

TEST(Draw, PenaltiesThatOverflowAreAnError) {
  const std::array<float, 2> logits = {1e38f, 0.0f};
  SamplingParams params = at(0.0f);
  params.repetition_penalty = 1e-3f;
  TokenCounts seen;
  seen.add_generated(0);
  const auto result = draw(logits, {&params, 0, &seen});
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().message, "the penalties overflow a logit");
}

// How often each of four tokens is drawn, against the expected shares.
class Frequencies : public ::testing::Test {
 protected:
  static constexpr int kDraws = 40000;
  const std::array<float, 4> logits_ = {std::log(0.5f), std::log(0.1f), std::log(0.3f),
                                        std::log(0.1f)};
  SamplingParams params_ = at(1.0f, 1.0f, 7);
  TokenCounts seen_;
  std::vector<std::uint64_t> allowed_;

  // `weights` need not sum to 1.
  void expect(std::array<double, 4> weights) {
    std::array<int, 4> counts{};
    for (int i = 0; i < kDraws; ++i) {
      const Draw one{&params_, static_cast<std::uint64_t>(i), &seen_, {}, allowed_};
      counts[static_cast<std::size_t>(draw(logits_, one).value().token)]++;
    }
    double sum = 0;
    for (const double weight : weights) sum += weight;
    for (std::size_t i = 0; i < 4; ++i) {
      const double share = weights[i] / sum;
      // Five standard deviations of a binomial count.
      EXPECT_NEAR(counts[i], kDraws * share, 5 * std::sqrt(kDraws * share * (1 - share)))
          << "token " << i;
    }
  }
};

TEST_F(Frequencies, FollowTheModel) {
  expect({0.5, 0.1, 0.3, 0.1});
}

TEST_F(Frequencies, Temperature) {
  params_.temperature = 0.5f;
  expect({0.25, 0.01, 0.09, 0.01});
}

TEST_F(Frequencies, TopP) {
  params_.top_p = 0.85f;
  expect({0.5, 0.1, 0.3, 0});  // the lower of the two equals is kept
}

TEST_F(Frequencies, TopK) {
  params_.top_k = 2;
  expect({0.5, 0, 0.3, 0});
}

TEST_F(Frequencies, TopKThenTopPOfWhatIsLeft) {
  params_.top_k = 2;
  params_.top_p = 0.6f;  // 0.5 of 0.8 is enough; of the whole it would not be
  expect({1, 0, 0, 0});
}

TEST_F(Frequencies, MinP) {
  params_.min_p = 0.3f;  // of 0.5
  expect({0.5, 0, 0.3, 0});
}

TEST_F(Frequencies, MinPIsOfTheDistributionAtTheTemperature) {
  params_.min_p = 0.3f;
  params_.temperature = 4.0f;
  expect({std::pow(0.5, 0.25), std::pow(0.1, 0.25), std::pow(0.3, 0.25), std::pow(0.1, 0.25)});
}

TEST_F(Frequencies, MinPBeforeTopP) {
  params_.min_p = 0.3f;
  params_.top_p = 0.6f;  // 0.5 of the 0.8 left is enough
  expect({1, 0, 0, 0});
}

TEST_F(Frequencies, PresencePenaltyOnceForGeneratedTokens) {
  params_.presence_penalty = 1.0f;
  seen_.add_prompt(std::array<TokenId, 2>{1, 2});
  for (int i = 0; i < 3; ++i) seen_.add_generated(0);
  expect({0.5 * std::exp(-1.0), 0.1, 0.3, 0.1});
}

TEST_F(Frequencies, FrequencyPenaltyEachTime) {
  params_.frequency_penalty = 0.5f;
  seen_.add_prompt(std::array<TokenId, 1>{2});
  for (int i = 0; i < 3; ++i) seen_.add_generated(0);
  seen_.add_generated(1);
  expect({0.5 * std::exp(-1.5), 0.1 * std::exp(-0.5), 0.3, 0.1});
}

TEST_F(Frequencies, NegativePenaltiesInvite) {
  params_.presence_penalty = -1.0f;
  seen_.add_generated(3);
  expect({0.5, 0.1, 0.3, 0.1 * std::exp(1.0)});
}

TEST_F(Frequencies, RepetitionPenaltyForPromptAndGeneratedTokens) {
  params_.repetition_penalty = 2.0f;  // these logits are negative: doubled, probabilities squared
  seen_.add_prompt(std::array<TokenId, 2>{0, 0});
  seen_.add_generated(1);
  expect({0.25, 0.01, 0.3, 0.1});
}

TEST_F(Frequencies, LogitBias) {
  params_.logit_bias = {{1, 1.0f}, {0, -100.0f}};
  expect({0, 0.1 * std::exp(1.0), 0.3, 0.1});
}

TEST_F(Frequencies, AllowedTokens) {
  allowed_ = {0b1010};
  expect({0, 0.1, 0, 0.1});
}

TEST(Draw, RepetitionPenaltyDividesPositiveLogits) {
  const std::array<float, 3> logits = {4.0f, 3.0f, 1.0f};
  SamplingParams params = at(0.0f);
  params.repetition_penalty = 2.0f;
  TokenCounts seen;
  seen.add_generated(0);
  EXPECT_EQ(draw(logits, {&params, 0, &seen}).value().token, 1);
}

TEST(Draw, DependsOnSeedAndPositionOnly) {
  std::array<float, 64> logits{};
  int differs = 0;
  for (std::uint64_t position = 0; position < 64; ++position) {
    const TokenId first = token(logits, at(1.0f, 1.0f, 5), position);
    EXPECT_EQ(first, token(logits, at(1.0f, 1.0f, 5), position));
    differs += first != token(logits, at(1.0f, 1.0f, 6), position);
  }
  EXPECT_GT(differs, 48);
}

// Each position's logits depend on the token before it, as a model's do.
std::vector<float> logits_after(TokenId before) {
  std::vector<float> row(50);
  for (std::size_t i = 0; i < row.size(); ++i)
    row[i] = 3.0f * static_cast<float>(uniform(static_cast<std::uint64_t>(before), i));
  return row;
}

TEST(Draw, DraftsChangeNoToken) {
  const std::array<TokenId, 3> prompt = {4, 8, 4};
  for (const float temperature : {0.0f, 0.8f}) {
    SamplingParams params = at(temperature, 0.9f, 3);
    params.presence_penalty = 0.7f;
    params.frequency_penalty = 0.4f;
    params.repetition_penalty = 1.2f;
    params.logit_bias = {{9, 0.5f}};
    params.min_p = 0.01f;
    std::vector<TokenId> alone(prompt.begin(), prompt.end());
    TokenCounts seen;
    seen.add_prompt(prompt);
    while (alone.size() < 80) {
      alone.push_back(
          draw(logits_after(alone.back()), {&params, alone.size(), &seen}).value().token);
      seen.add_generated(alone.back());
    }
    // Drafts of up to four tokens that are right until one is not; `counts` hears of them afterwards.
    std::vector<TokenId> tokens(prompt.begin(), prompt.end());
    TokenCounts counts;
    counts.add_prompt(prompt);
    for (std::size_t step = 0; tokens.size() + 4 < alone.size(); ++step) {
      std::vector<TokenId> draft;
      for (std::size_t i = 0; i < step % 5; ++i)
        draft.push_back(i == 2 && step % 3 == 0 ? 49 : alone[tokens.size() + i]);
      const std::size_t first = tokens.size();
      for (std::size_t i = 0; i <= draft.size(); ++i) {
        const Draw one{&params, first + i, &counts, std::span(draft).first(i)};
        tokens.push_back(draw(logits_after(tokens.back()), one).value().token);
        if (i < draft.size() && tokens.back() != draft[i]) break;
      }
      for (std::size_t i = first; i < tokens.size(); ++i) counts.add_generated(tokens[i]);
    }
    for (std::size_t i = 0; i < tokens.size(); ++i) ASSERT_EQ(tokens[i], alone[i]) << "token " << i;
  }
}

TEST(Draw, ReportsTheModelsOwnLogprobs) {
  const std::array<float, 4> logits = {1.0f, 4.0f, 2.0f, 4.0f};
  SamplingParams params = at(0.0f);
  params.logit_bias = {{0, 90.0f}};
  EXPECT_FALSE(draw(logits, {&params}).value().logprob);
  params.logprobs = 2;
  const GeneratedToken found = draw(logits, {&params}).value();
  EXPECT_EQ(found.token, 0);
  EXPECT_EQ(found.logprob, logprobs(logits, 0, 0).chosen);
  ASSERT_EQ(found.top.size(), 2u);
  EXPECT_EQ(found.top[0].token, 1);
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

// Values of splitmix64's published implementation.
TEST(ChoiceSeed, IsSplitmix64StartedAtTheSeed) {
  EXPECT_EQ(choice_seed(1234567, 0), 1234567u);
  EXPECT_EQ(choice_seed(1234567, 1), 6457827717110365317u);
  EXPECT_EQ(choice_seed(1234567, 2), 3203168211198807973u);
  EXPECT_EQ(choice_seed(1234567, 3), 9817491932198370423u);
  EXPECT_EQ(choice_seed(0, 1), 0xE220A8397B1DCDAFu);
}

}  // namespace
}  // namespace nibble::sample
