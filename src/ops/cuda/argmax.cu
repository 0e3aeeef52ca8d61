// The most likely token of a row.
#include "ops/argmax.h"
#include "ops/cuda/cuda_error.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/numerics.cuh"

namespace nibble::ops::cuda {
namespace {

constexpr int kThreads = 1024;

// Larger for a larger value and, of equal ones, for the lower id; the largest of all for a NaN.
__device__ std::uint64_t rank_of(float x, std::uint32_t id) {
  return isnan(x) ? ~0ull : static_cast<std::uint64_t>(sortable(x)) << 32 | (0xFFFFFFFFu - id);
}

__device__ std::uint64_t warp_largest(std::uint64_t rank) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2)
    rank = max(rank, __shfl_xor_sync(0xFFFFFFFFu, rank, offset));
  return rank;
}

// A block a row.
__global__ void __launch_bounds__(kThreads)
    argmax_kernel(const float* x, std::int64_t width, std::int32_t* best) {
  __shared__ std::uint64_t s_rank[kThreads / kWarp];
  const float* row = x + blockIdx.x * width;
  std::uint64_t rank = 0;
  for (std::int64_t i = threadIdx.x; i < width; i += kThreads)
    rank = max(rank, rank_of(row[i], static_cast<std::uint32_t>(i)));
  rank = warp_largest(rank);
  if (threadIdx.x % kWarp == 0) s_rank[threadIdx.x / kWarp] = rank;
  __syncthreads();
  if (threadIdx.x >= kWarp) return;
  rank = warp_largest(s_rank[threadIdx.x]);
  const auto value = static_cast<std::uint32_t>(rank >> 32);
  const bool finite = value > sortable(-INFINITY) && value < sortable(INFINITY);
  if (threadIdx.x == 0)
    best[blockIdx.x] =
        finite ? static_cast<std::int32_t>(0xFFFFFFFFu - static_cast<std::uint32_t>(rank))
               : kNoBest;
}

}  // namespace

void launch_argmax_rows(const float* x, std::int64_t n, std::int64_t width, std::int32_t* best,
                        cudaStream_t stream) {
  argmax_kernel<<<static_cast<unsigned>(n), kThreads, 0, stream>>>(x, width, best);
  NIBBLE_CUDA(cudaGetLastError());
}

}  // namespace nibble::ops::cuda
