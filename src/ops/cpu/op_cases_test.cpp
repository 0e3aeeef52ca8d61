// The table of op cases on the CPU backend, with several numbers of threads.
#include <gtest/gtest.h>

#include <cstdlib>

#include "ops/cpu/cpu_backend.h"
#include "ops/ref/ref_backend.h"
#include "ops/testing/op_cases.h"

namespace nibble::ops::cpu {
namespace {

class OpCases : public ::testing::TestWithParam<std::tuple<Numerics, int>> {};

TEST_P(OpCases, MatchTheReference) {
  const auto& [numerics, threads] = GetParam();
  if (std::getenv("NIBBLE_TEST_SHORT") && threads != 2) GTEST_SKIP() << "short: 2 threads only";
  ThreadPool pool(threads);
  CpuBackend subject(numerics, pool);
  ref::RefBackend reference(numerics);
  const testing::OpReport report = testing::run_op_cases(subject, reference, testing::case_seed());
  EXPECT_GT(report.cases, 200);
  EXPECT_TRUE(report.failures.empty()) << "NIBBLE_TEST_SEED=" << testing::case_seed() << "\n"
                                       << subject.description() << "\n"
                                       << report.to_string();
}

constexpr Numerics kExact{};
constexpr Numerics kRelease{true, RowFormat::kFp8Nope, RowFormat::kFp4Index};

INSTANTIATE_TEST_SUITE_P(Threads, OpCases,
                         ::testing::Combine(::testing::Values(kExact, kRelease),
                                            ::testing::Values(1, 2, 3)));

}  // namespace
}  // namespace nibble::ops::cpu
