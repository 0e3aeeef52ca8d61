#include "engine/testing/fixed_cost_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

namespace nibble::engine::testing {
namespace {

const std::vector<TokenId> kAlphabet = {10, 11, 12, 13, 14, 15, 16, 17};

class FixedCost : public ::testing::Test {
 protected:
  FixedCostOptions options() {
    FixedCostOptions options;
    options.base_us = 100.0;
    options.per_row_us = 3.0;
    options.draft_us = 7.0;
    options.limits = {4, 64, 32, 3};
    options.vocab_size = 100;
    options.alphabet = kAlphabet;
    options.spend = [this](double us) { spent_us_ += us; };
    return options;
  }

  // One sequence's rows through the model.
  static void forward(StepModel& model, int slot, int position, std::vector<TokenId> ids) {
    const ops::Segment segment{0, static_cast<std::int32_t>(ids.size()), slot, position, 0};
    model.forward({ids, std::span(&segment, 1)});
  }
  static TokenId draw(StepModel& model, int row, int position,
                      std::span<const std::uint64_t> allowed = {}) {
    SamplingParams params;
    DrawRow request;
    request.row = row;
    request.draw.params = &params;
    request.draw.position = static_cast<std::uint64_t>(position);
    request.draw.allowed = allowed;
    return model.draw(std::span(&request, 1)).front().value().token;
  }
  static std::vector<TokenId> prompt(int length) {
    std::vector<TokenId> ids(static_cast<std::size_t>(length));
    std::iota(ids.begin(), ids.end(), 20);
    return ids;
  }

  double spent_us_ = 0.0;
};

TEST_F(FixedCost, AStepCostsItsBaseAndItsRows) {
  FixedCostModel model(options());
  forward(model, 0, 0, prompt(5));
  EXPECT_EQ(spent_us_, 115.0);
  const std::vector<TokenId> ids = prompt(1);
  const ops::Segment segment{0, 1, 0, 4, 0};
  const DraftRow row{0, 0};
  forward(model, 0, 5, {30});
  (void)model.draft({ids, std::span(&segment, 1)}, std::span(&row, 1), 2);
  EXPECT_EQ(spent_us_, 115.0 + 103.0 + 14.0);
}

TEST_F(FixedCost, ChunksSlotsAndCompanyDoNotChangeWhatIsDrawn) {
  const std::vector<TokenId> ids = prompt(20);
  const TokenId expected = FixedCostModel::continuation(kAlphabet, ids, 1)[0];
  for (const int chunk : {1, 7, 20}) {
    FixedCostModel model(options());
    int row = 0;
    for (int at = 0; at < 20; at += chunk) {
      const int rows = std::min(chunk, 20 - at);
      forward(model, chunk % 4, at, {ids.begin() + at, ids.begin() + at + rows});
      row = rows - 1;
    }
    EXPECT_EQ(draw(model, row, 20), expected) << "chunks of " << chunk;
  }
  FixedCostModel model(options());
  std::vector<TokenId> both = prompt(3);
  both.insert(both.end(), ids.begin(), ids.end());
  const ops::Segment segments[] = {{0, 3, 1, 0, 0}, {3, 20, 2, 0, 0}};
  model.forward({both, segments});
  EXPECT_EQ(draw(model, 22, 20), expected);
}

TEST_F(FixedCost, TakenBackTokensAreForgotten) {
  FixedCostModel model(options());
  const std::vector<TokenId> ids = prompt(10);
  forward(model, 0, 0, ids);
  forward(model, 0, 10, {1, 2, 3});
  forward(model, 0, 10, {50});
  std::vector<TokenId> kept = ids;
  kept.push_back(50);
  EXPECT_EQ(draw(model, 0, 11), FixedCostModel::continuation(kAlphabet, kept, 1)[0]);
}

TEST_F(FixedCost, ARestoredSequenceGoesOn) {
  FixedCostModel model(options());
  const std::vector<TokenId> ids = prompt(30);
  forward(model, 0, 0, ids);
  const std::vector<std::byte> saved = model.save(0, 28, 0);
  EXPECT_EQ(static_cast<std::int64_t>(saved.size()), model.saved_bytes(28));
  model.restore(3, 28, 0, saved);
  forward(model, 3, 28, {ids[28], ids[29]});
  EXPECT_EQ(draw(model, 1, 30), FixedCostModel::continuation(kAlphabet, ids, 1)[0]);
}

TEST_F(FixedCost, WrongPositionsEndTheProcess) {
  FixedCostModel model(options());
  forward(model, 0, 0, prompt(10));
  EXPECT_DEATH(forward(model, 0, 11, {1}), "position 11");
  EXPECT_DEATH(forward(model, 0, 6, {1}), "position 6");
  EXPECT_DEATH(forward(model, 1, 3, {1}), "position 3");
  EXPECT_DEATH((void)draw(model, 9, 11), "position 11");
}

TEST_F(FixedCost, AMaskIsObeyed) {
  FixedCostModel model(options());
  forward(model, 0, 0, prompt(4));
  const std::uint64_t only_70[] = {0, std::uint64_t{1} << 6};
  EXPECT_EQ(draw(model, 3, 4, only_70), 70);
}

// Of many proposals the chosen share is what the model then draws.
TEST_F(FixedCost, ProposalsAreRightAsOftenAsTold) {
  FixedCostOptions chosen = options();
  chosen.acceptance = 0.8;
  constexpr int kSteps = 4000;
  chosen.max_model_len = kSteps + 1;
  FixedCostModel model(chosen);
  int right = 0, position = 0;
  std::vector<TokenId> ids = {20};
  for (int i = 0; i < kSteps; ++i, ++position) {
    const ops::Segment segment{0, 1, 0, position, 0};
    model.forward({ids, std::span(&segment, 1)});
    const TokenId next = draw(model, 0, position + 1);
    ids[0] = next;
    const DraftRow row{0, 0};
    const TokenId proposed = model.draft({ids, std::span(&segment, 1)}, std::span(&row, 1), 1)[0];
    // What the model draws after `next` is known to be right or wrong in the next step.
    const ops::Segment after{0, 1, 0, position + 1, 0};
    model.forward({ids, std::span(&after, 1)});
    right += proposed == draw(model, 0, position + 2);
  }
  // Five standard deviations of a coin thrown kSteps times.
  EXPECT_NEAR(static_cast<double>(right) / kSteps, 0.8, 5 * std::sqrt(0.8 * 0.2 / kSteps));
}

}  // namespace
}  // namespace nibble::engine::testing
