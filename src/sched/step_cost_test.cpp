#include "sched/step_cost.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace nibble::sched {
namespace {

// A machine whose steps take base + row * rows, and draft * depth.
struct Machine {
  double base = 2.0, row = 0.1, draft = 0.3;
  double ms(const StepShape& s) const {
    return base + row * (s.decoding * (1 + s.verified) + s.prefill) + draft * s.drafted;
  }
};

TEST(StepCost, APromptsShareGrowsToTheBudgetAndStaysBelow) {
  StepCost cost;
  const Machine machine;
  int tokens = 0, first = cost.prefill_tokens(4, 0, 50.0, 4096);
  EXPECT_LE(first, 16);
  for (int step = 0; step < 30; ++step) {
    tokens = cost.prefill_tokens(4, 0, 50.0, 4096);
    const StepShape shape{.decoding = 4, .prefill = tokens};
    EXPECT_LE(machine.ms(shape), 50.0);
    cost.observe(shape, machine.ms(shape));
    cost.observe({.decoding = 4}, machine.ms({.decoding = 4}));
  }
  EXPECT_GE(machine.ms({.decoding = 4, .prefill = tokens}), 0.8 * 50.0);
  EXPECT_EQ(cost.prefill_tokens(4, 0, 50.0, 100), 100);
  EXPECT_GE(cost.prefill_tokens(4, 0, 1.0, 4096), 1) << "prompts get on, whatever the budget";
}

int settled_depth(StepCost& cost, const Machine& machine, int decoding, double acceptance) {
  int depth = 0, before = 0;
  unsigned random = 1;
  for (int step = 0; step < 400; ++step) {
    before = depth;
    depth = cost.draft_depth(decoding, 4);
    const StepShape shape{.decoding = decoding, .verified = before, .drafted = depth};
    cost.observe(shape, machine.ms(shape));
    int accepted = 0;
    while (accepted < before) {
      random = random * 1664525u + 1013904223u;
      if (random >> 8 >= acceptance * (1 << 24)) break;
      ++accepted;
    }
    cost.observe_drafts(before, accepted);
  }
  return depth;
}

TEST(StepCost, DraftsWhatGivesMostTokensASecond) {
  for (const double acceptance : {0.0, 0.3, 0.6, 0.9}) {
    for (const double row : {0.0, 0.2, 1.0, 3.0}) {
      Machine machine;
      machine.row = row;
      StepCost cost;
      const int depth = settled_depth(cost, machine, 2, acceptance);
      const auto rate = [&](int k) {
        double tokens = 1.0, chance = 1.0;
        for (int i = 0; i < k; ++i) tokens += chance *= acceptance;
        return tokens / machine.ms({.decoding = 2, .verified = k, .drafted = k});
      };
      double best = 0.0;
      for (int k = 0; k <= 4; ++k) best = std::max(best, rate(k));
      EXPECT_GE(rate(depth), 0.9 * best)
          << "acceptance " << acceptance << " row " << row << ": depth " << depth;
    }
  }
}

TEST(StepCost, WithoutADrafterNothingIsDrafted) {
  StepCost cost;
  for (int i = 0; i < 10; ++i) EXPECT_EQ(cost.draft_depth(3, 0), 0);
}

}  // namespace
}  // namespace nibble::sched
