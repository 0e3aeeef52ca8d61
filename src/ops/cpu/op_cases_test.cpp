// The table of op cases on the CPU backend, with several numbers of threads.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "ops/cpu/cpu_backend.h"
#include "ops/ref/ref_backend.h"
#include "ops/testing/op_cases.h"

namespace nibble::ops::cpu {
namespace {

// Printed by every failure; set NIBBLE_TEST_SEED to run it again.
std::uint64_t seed() {
  static const std::uint64_t value = [] {
    const char* set = std::getenv("NIBBLE_TEST_SEED");
    const std::uint64_t drawn = set ? std::stoull(set) : std::random_device{}();
    std::printf("seed %llu\n", static_cast<unsigned long long>(drawn));
    return drawn;
  }();
  return value;
}

class OpCases : public ::testing::TestWithParam<std::tuple<Numerics, int>> {};

TEST_P(OpCases, MatchTheReference) {
  const auto& [numerics, threads] = GetParam();
  if (std::getenv("NIBBLE_TEST_SHORT") && threads != 2) GTEST_SKIP() << "short: 2 threads only";
  ThreadPool pool(threads);
  CpuBackend subject(numerics, pool);
  ref::RefBackend reference(numerics);
  const testing::OpReport report = testing::run_op_cases(subject, reference, seed());
  EXPECT_GT(report.cases, 200);
  EXPECT_TRUE(report.failures.empty()) << "NIBBLE_TEST_SEED=" << seed() << "\n"
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
