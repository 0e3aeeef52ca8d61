#include "bench/stats.h"

#include <gtest/gtest.h>

#include <numeric>

namespace nibble::bench {
namespace {

TEST(Stats, NothingIsAllZero) {
  const Summary summary = summarize({});
  EXPECT_EQ(summary.count, 0.0);
  EXPECT_EQ(summary.p99, 0.0);
}

TEST(Stats, OneValueIsEveryPercentile) {
  const Summary summary = summarize({{7.0, 1.0}});
  for (const double value : {summary.mean, summary.p50, summary.p95, summary.p99, summary.max})
    EXPECT_EQ(value, 7.0);
}

// Nearest rank: of 1..100 the p-th percentile is p.
TEST(Stats, PercentilesAreMeasuredValues) {
  std::vector<Sample> samples;
  for (int i = 100; i >= 1; --i) samples.push_back({static_cast<double>(i), 1.0});
  const Summary summary = summarize(samples);
  EXPECT_EQ(summary.p50, 50.0);
  EXPECT_EQ(summary.p95, 95.0);
  EXPECT_EQ(summary.p99, 99.0);
  EXPECT_EQ(summary.max, 100.0);
  EXPECT_EQ(summary.mean, 50.5);
}

// A weight of k is the value k times.
TEST(Stats, WeightsCountAsRepetitions) {
  std::vector<Sample> weighted, repeated;
  for (int i = 1; i <= 30; ++i) {
    weighted.push_back({i * 1.5, static_cast<double>(i)});
    for (int j = 0; j < i; ++j) repeated.push_back({i * 1.5, 1.0});
  }
  const Summary a = summarize(weighted), b = summarize(repeated);
  EXPECT_EQ(a.count, b.count);
  EXPECT_DOUBLE_EQ(a.mean, b.mean);
  EXPECT_EQ(a.p50, b.p50);
  EXPECT_EQ(a.p95, b.p95);
  EXPECT_EQ(a.p99, b.p99);
}

TEST(Stats, SharesOfATokenDoNotShiftARank) {
  // Ten thirds of a token at 1, then ten thirds at 2: the middle is the last 1.
  std::vector<Sample> samples(10, {1.0, 1.0 / 3.0});
  samples.insert(samples.end(), 10, {2.0, 1.0 / 3.0});
  EXPECT_EQ(summarize(samples).p50, 1.0);
}

}  // namespace
}  // namespace nibble::bench
