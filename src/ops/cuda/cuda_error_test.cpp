// Which CUDA errors end the process. Needs no GPU.
#include "ops/cuda/cuda_error.h"

#include <gtest/gtest.h>

#include <string>

#include "nibble/status.h"
#include "ops/cuda/step_graphs.h"

namespace nibble::ops::cuda {
namespace {

TEST(CudaError, StickyOnesLoseTheDevice) {
  EXPECT_NO_THROW(NIBBLE_CUDA(cudaSuccess));
  EXPECT_THROW(NIBBLE_CUDA(cudaErrorIllegalAddress), DeviceLost);
  EXPECT_THROW(NIBBLE_CUDA(cudaErrorLaunchFailure), DeviceLost);
  EXPECT_THROW(NIBBLE_CUDA(cudaErrorECCUncorrectable), DeviceLost);
  for (const cudaError_t error : {cudaErrorMemoryAllocation, cudaErrorInvalidValue}) {
    try {
      NIBBLE_CUDA(error);
      FAIL();
    } catch (const DeviceLost&) {
      FAIL() << cudaGetErrorName(error);
    } catch (const Error& thrown) {
      EXPECT_NE(std::string(thrown.what()).find(cudaGetErrorName(error)), std::string::npos);
    }
  }
}

TEST(GraphKey, RoundsUpToFewShapes) {
  PassKey pass;
  pass.max_rows = 300;
  const auto rows = [&](std::int64_t n) { return GraphKey::of(pass, n, 1).rows; };
  const std::int64_t expected[][2] = {{1, 1},     {2, 2},     {3, 3},    {4, 4},   {5, 6},
                                      {6, 6},     {7, 8},     {8, 8},    {9, 12},  {12, 12},
                                      {13, 16},   {17, 24},   {24, 24},  {25, 32}, {192, 192},
                                      {193, 256}, {256, 256}, {257, 300}};
  for (const auto& [n, bucket] : expected) EXPECT_EQ(rows(n), bucket) << n;
  EXPECT_EQ(GraphKey::of(pass, 1, 1024).context, 1024);
  EXPECT_EQ(GraphKey::of(pass, 1, 1025).context, 2048);
}

}  // namespace
}  // namespace nibble::ops::cuda
