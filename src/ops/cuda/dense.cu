// Embedding, norm, matrices.
#include "ops/cuda/cuda_error.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/matrix.cuh"
#include "ops/cuda/numerics.cuh"

namespace nibble::ops::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kTokens = 8;   // that share one decoding of a weight row
constexpr int kGroup = 128;  // channels of an activation that share a scale

unsigned blocks_of(std::int64_t work, std::int64_t per_block) {
  return static_cast<unsigned>((work + per_block - 1) / per_block);
}

__global__ void embed_kernel(const TokenId* ids, Matrix table, float* streams, int hc, int d) {
  const TokenId id = ids[blockIdx.x];
  for (int i = threadIdx.x; i < d; i += blockDim.x) {
    const float value = id < 0 ? 0.0f : weight_at(table, id, i);  // padding rows: zeros
    for (int k = 0; k < hc; ++k)
      streams[(static_cast<std::int64_t>(blockIdx.x) * hc + k) * d + i] = value;
  }
}

__global__ void rms_norm_kernel(const float* x, const float* weight, int d, float eps, bool release,
                                float* y) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * d;
  rms_norm_row(x + row, weight, d, eps, release, y + row);
}

__global__ void fp8_round_kernel(const float* x, std::int64_t d, std::int64_t groups,
                                 std::int64_t all_groups, float* y) {
  const std::int64_t group =
      (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / kWarp;
  if (group >= all_groups) return;
  const std::int64_t begin = group / groups * d + group % groups * kGroup;
  const int count =
      static_cast<int>(min(static_cast<std::int64_t>(kGroup), d - group % groups * kGroup));
  fp8_round_group(x + begin, count, y + begin);
}

// A warp a weight row and kTokens tokens. Row r belongs to group r / (rows / groups), which sees its own cols of x.
__global__ void __launch_bounds__(kThreads)
    linear_kernel(const float* x, std::int64_t n, Matrix weight, int groups, float* y,
                  bool round_output) {
  const std::int64_t r = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / kWarp;
  if (r >= weight.rows) return;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.y) * kTokens,
                     stride = groups * weight.cols;
  const int tokens = static_cast<int>(min(static_cast<std::int64_t>(kTokens), n - first));
  float sum[kTokens];
  warp_dots<kTokens>(weight, r, x + first * stride + r / (weight.rows / groups) * weight.cols,
                     stride, tokens, sum);
#pragma unroll
  for (int t = 0; t < kTokens; ++t)
    if (t < tokens && threadIdx.x % kWarp == t)
      y[(first + t) * weight.rows + r] = round_output ? quant::bf16_round(sum[t]) : sum[t];
}

__global__ void stream_add_kernel(const float* e, float* streams, int hc, int d, bool release) {
  for (int i = threadIdx.x; i < hc * d; i += blockDim.x) {
    float& x = streams[static_cast<std::int64_t>(blockIdx.x) * hc * d + i];
    const float sum = e[static_cast<std::int64_t>(blockIdx.x) * d + i % d] + x;
    x = release ? quant::bf16_round(sum) : sum;
  }
}

}  // namespace

bool has_code_for_this_device() {
  cudaFuncAttributes attributes{};
  const cudaError_t error = cudaFuncGetAttributes(&attributes, rms_norm_kernel);
  (void)cudaGetLastError();
  return error == cudaSuccess;
}

void launch_embed(const TokenId* ids, std::int64_t n, const Matrix& table, float* streams, int hc,
                  int d, cudaStream_t stream) {
  embed_kernel<<<static_cast<unsigned>(n), kThreads, 0, stream>>>(ids, table, streams, hc, d);
  NIBBLE_CUDA(cudaGetLastError());
}

void launch_rms_norm(const float* x, std::int64_t n, const float* weight, int d, float eps,
                     bool release, float* y, cudaStream_t stream) {
  rms_norm_kernel<<<static_cast<unsigned>(n), kThreads, 0, stream>>>(x, weight, d, eps, release, y);
  NIBBLE_CUDA(cudaGetLastError());
}

void launch_fp8_round(const float* x, std::int64_t n, std::int64_t d, float* y,
                      cudaStream_t stream) {
  const std::int64_t groups = (d + kGroup - 1) / kGroup, all = n * groups;
  fp8_round_kernel<<<blocks_of(all * kWarp, kThreads), kThreads, 0, stream>>>(x, d, groups, all, y);
  NIBBLE_CUDA(cudaGetLastError());
}

void launch_linear(const float* x, std::int64_t n, const Matrix& weight, int groups, float* y,
                   bool round_output, cudaStream_t stream) {
  const dim3 grid(blocks_of(weight.rows * kWarp, kThreads), blocks_of(n, kTokens));
  linear_kernel<<<grid, kThreads, 0, stream>>>(x, n, weight, groups, y, round_output);
  NIBBLE_CUDA(cudaGetLastError());
}

void launch_stream_add(const float* e, std::int64_t n, float* streams, int hc, int d, bool release,
                       cudaStream_t stream) {
  stream_add_kernel<<<static_cast<unsigned>(n), kThreads, 0, stream>>>(e, streams, hc, d, release);
  NIBBLE_CUDA(cudaGetLastError());
}

}  // namespace nibble::ops::cuda
