#include "plan/speed.h"

#include <gtest/gtest.h>

#include <cmath>

#include "plan/testing/published.h"

namespace nibble::plan {
namespace {

SpeedPlan speed(const char* model, const std::string& gpu, std::int64_t context = 4096) {
  PlanOptions options;
  options.gpu = parse_gpu(gpu);
  options.context = context;
  return plan_speed(testing::published(model).config, testing::published_groups(model), options);
}

// quantization.md 5.1, rounded there to whole experts (512: 256).
TEST(Speed, DistinctExpertsFollowTheTableForUniformRouting) {
  const int tokens[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512};
  const int experts[] = {6, 12, 23, 44, 81, 136, 200, 244, 255, 256};
  for (int i = 0; i < 10; ++i)
    EXPECT_NEAR(distinct_experts(256, 6, tokens[i]), experts[i], 0.7) << tokens[i];
  EXPECT_DOUBLE_EQ(distinct_experts(16, 16, 1), 16);
}

TEST(Speed, BytesOfADecodeStepOfFlashAtFourThousandTokens) {
  const double gb[] = {11.2, 21, 54, 124, 158};
  const SpeedPlan plan = speed("DeepSeek-V4-Flash", "h200:2");
  ASSERT_EQ(plan.decode.size(), 5u);
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(plan.decode[i].batch, kBatches[i]);
    EXPECT_NEAR(static_cast<double>(plan.decode[i].bytes) / 1e9, gb[i], 0.01 * gb[i])
        << "batch " << kBatches[i];
  }
}

TEST(Speed, FloorsAreBytesOverNominalBandwidthWhileArithmeticIsCheap) {
  // deepseek-v4.md 9.3: 2.34 ms a token at batch 1 on one H200.
  EXPECT_NEAR(speed("DeepSeek-V4-Flash", "h200").decode[0].floor_ms, 2.34, 0.005);
  EXPECT_NEAR(speed("DeepSeek-V4-Flash", "h200:2").decode[0].floor_ms, 1.17, 0.005);
  for (const DecodeEstimate& e : speed("DeepSeek-V4-Pro", "b200:8").decode)
    EXPECT_NEAR(e.floor_ms, static_cast<double>(e.bytes) / (8 * 7.67e12) * 1e3, 1e-6) << e.batch;
}

TEST(Speed, NothingIsFasterThanItsFloorOnAnyMachine) {
  for (const char* kind : {"h200", "h100", "b200", "rtx-pro-6000", "rtx-5090", "dgx-spark", "cpu"})
    for (const int n : {1, 2, 3, 8}) {
      if (std::string(kind) == "cpu" && n > 1) continue;
      const SpeedPlan plan =
          speed("DeepSeek-V4-Flash", std::string(kind) + ":" + std::to_string(n), 100'000);
      double previous = 0;
      for (const DecodeEstimate& e : plan.decode) {
        EXPECT_GT(e.ms, e.floor_ms) << kind << n;
        EXPECT_GT(e.ms, previous) << kind << n;
        EXPECT_NEAR(e.tokens_per_s, e.batch / e.ms * 1e3, 1e-6 * e.tokens_per_s);
        previous = e.ms;
      }
      EXPECT_GT(plan.prefill_tokens_per_s, plan.decode[0].tokens_per_s) << kind << n;
      EXPECT_FALSE(plan.measured);
    }
}

// What the prototypes of the H200 kernels took, per layer at batch 1 (dense and hyper-connections 49.7 us, experts 24.5, CSA
// attention 6.6, selection 6.4): 43 layers and the head. The estimate knows none of these numbers but the launch cost.
TEST(Speed, TheEstimateForOneH200IsNearTheSumOfItsMeasuredKernels) {
  const double head_ms = 1059.1e6 / 4.5e12 * 1e3, compressors_ms = (525.7 + 275.3) / 4.5e6 * 1e3;
  const double measured_ms =
      (43 * (49.7 + 24.5 + 6.6) + 21 * 6.4) * 1e-3 + head_ms + compressors_ms;
  EXPECT_NEAR(speed("DeepSeek-V4-Flash", "h200").decode[0].ms, measured_ms, 0.15 * measured_ms);
}

TEST(Speed, MoreGpusHelpLessThanTheirNumberAndASlowLinkTakesItBack) {
  const auto ms = [](const char* gpu) { return speed("DeepSeek-V4-Flash", gpu).decode[0].ms; };
  EXPECT_LT(ms("h200:2"), ms("h200"));
  EXPECT_GT(ms("h200:2"), ms("h200") / 2);
  EXPECT_LT(ms("h200:8"), ms("h200:2"));
  EXPECT_GT(ms("rtx-5090:8"), ms("rtx-pro-6000:8"));  // the same memory; no peer access
}

TEST(Speed, LongContextsCostReadsOfTheCache) {
  const auto shorter = speed("DeepSeek-V4-Flash", "h200:2", 4096).decode[0];
  const auto longer = speed("DeepSeek-V4-Flash", "h200:2", 1 << 20).decode[0];
  EXPECT_NEAR(static_cast<double>(longer.bytes - shorter.bytes) / 1e6, 479.5 - 11.3, 0.2);
  EXPECT_GT(longer.ms, shorter.ms);
}

}  // namespace
}  // namespace nibble::plan
