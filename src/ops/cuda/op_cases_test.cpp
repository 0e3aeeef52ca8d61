// The table of op cases on a GPU.
#include <gtest/gtest.h>

#include "ops/cuda/cuda_backend.h"
#include "ops/ref/ref_backend.h"
#include "ops/testing/op_cases.h"

namespace nibble::ops::cuda {
namespace {

class CudaOpCases : public ::testing::TestWithParam<Numerics> {};

TEST_P(CudaOpCases, MatchTheReference) {
  if (device_count() == 0) GTEST_SKIP() << "no NVIDIA GPU on this machine";
  CudaBackend subject(GetParam());
  ref::RefBackend reference(GetParam());
  const testing::OpReport report = testing::run_op_cases(subject, reference, testing::case_seed());
  EXPECT_GT(report.cases, 200);
  std::printf("%d cases, %lld values\n", report.cases, static_cast<long long>(report.values));
  EXPECT_TRUE(report.failures.empty()) << "NIBBLE_TEST_SEED=" << testing::case_seed() << "\n"
                                       << subject.description() << "\n"
                                       << report.to_string();
}

INSTANTIATE_TEST_SUITE_P(
    Numerics, CudaOpCases,
    ::testing::Values(Numerics{}, Numerics{false, RowFormat::kBf16, RowFormat::kBf16},
                      Numerics{true, RowFormat::kFp8Nope, RowFormat::kFp4Index}),
    [](const ::testing::TestParamInfo<Numerics>& tested) {
      return tested.param.release                      ? "release"
             : tested.param.kv_rows == RowFormat::kF32 ? "exact"
                                                       : "exact_bf16_rows";
    });

}  // namespace
}  // namespace nibble::ops::cuda
