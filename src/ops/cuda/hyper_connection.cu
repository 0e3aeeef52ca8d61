// Hyper-connections (deepseek-v4.md 2.2, 2.3): one block a token.
#include "ops/cuda/cuda_error.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/numerics.cuh"

namespace nibble::ops::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kMaxMix = (2 + kMaxStreams) * kMaxStreams;

__device__ float sigmoid(float x) {
  return 1.0f / (1.0f + expf(-x));
}

// streams[k] = post[k] * out + sum_j comb[j][k] * streams[j] for one token.
__device__ void expand(float* streams, const float* out, const float* post, const float* comb,
                       int hc, int d, bool release) {
  for (int i = threadIdx.x; i < d; i += blockDim.x) {
    float old[kMaxStreams];
    for (int j = 0; j < hc; ++j) old[j] = streams[j * d + i];
    for (int k = 0; k < hc; ++k) {
      float sum = post[k] * out[i];
      for (int j = 0; j < hc; ++j) sum += comb[j * hc + k] * old[j];
      streams[k * d + i] = release ? quant::bf16_round(sum) : sum;
    }
  }
  __syncthreads();
}

// s_mix[r] = rsqrt(mean(f^2) + eps) * (fn[r] . f): a warp a row, lanes striding over f.
__device__ void scaled_fn(const float* f, int length, const float* fn, int rows, float eps,
                          float* s_mix) {
  float square = 0.0f;
  for (int i = threadIdx.x; i < length; i += blockDim.x) square = fmaf(f[i], f[i], square);
  const float s = 1.0f / sqrtf(block_sum(square) / static_cast<float>(length) + eps);
  for (int r = threadIdx.x / kWarp; r < rows; r += blockDim.x / kWarp) {
    const float* w = fn + static_cast<std::int64_t>(r) * length;
    float sum = 0.0f;
    for (int i = threadIdx.x % kWarp; i < length; i += kWarp) sum = fmaf(w[i], f[i], sum);
    sum = warp_sum(sum);
    if (threadIdx.x % kWarp == 0) s_mix[r] = s * sum;
  }
  __syncthreads();
}

// Softmax over each row, then alternating column and row normalisations, a column one first and last. One thread.
__device__ void sinkhorn(float* c, int hc, int iters, float eps) {
  for (int j = 0; j < hc; ++j) {
    float top = c[j * hc], sum = 0.0f;
    for (int k = 1; k < hc; ++k) top = fmaxf(top, c[j * hc + k]);
    for (int k = 0; k < hc; ++k) sum += c[j * hc + k] = expf(c[j * hc + k] - top);
    for (int k = 0; k < hc; ++k) c[j * hc + k] = c[j * hc + k] / sum + eps;
  }
  for (int round = 0; round < iters; ++round) {
    if (round > 0)
      for (int j = 0; j < hc; ++j) {
        float sum = eps;
        for (int k = 0; k < hc; ++k) sum += c[j * hc + k];
        for (int k = 0; k < hc; ++k) c[j * hc + k] /= sum;
      }
    for (int k = 0; k < hc; ++k) {
      float sum = eps;
      for (int j = 0; j < hc; ++j) sum += c[j * hc + k];
      for (int j = 0; j < hc; ++j) c[j * hc + k] /= sum;
    }
  }
}

// y = rms_norm(sum_i weight[i] * streams[i]) * norm for one token; null norm: the sum.
__device__ void collapse(const float* streams, const float* weight, int hc, int d,
                         const float* norm, float eps, bool release, float* y) {
  for (int i = threadIdx.x; i < d; i += blockDim.x) {
    float sum = 0.0f;
    for (int k = 0; k < hc; ++k) sum += weight[k] * streams[k * d + i];
    y[i] = release ? quant::bf16_round(sum) : sum;
  }
  if (!norm) return;
  __syncthreads();
  rms_norm_row(y, norm, d, eps, release, y);
}

__global__ void expand_kernel(float* streams, const float* out, const float* post,
                              const float* comb, int hc, int d, bool release) {
  const std::int64_t t = blockIdx.x;
  expand(streams + t * hc * d, out + t * d, post + t * hc, comb + t * hc * hc, hc, d, release);
}

__global__ void __launch_bounds__(kThreads) boundary_kernel(Boundary p) {
  __shared__ float s_mix[kMaxMix], s_pre[kMaxStreams], s_comb[kMaxStreams * kMaxStreams];
  const std::int64_t t = blockIdx.x;
  const int hc = p.hc;
  float* streams = p.streams + t * hc * p.d;
  float *post = p.post + t * hc, *comb = p.comb + t * hc * hc;
  if (p.out) expand(streams, p.out + t * p.d, post, comb, hc, p.d, p.release);
  scaled_fn(streams, hc * p.d, p.fn, (2 + hc) * hc, p.rms_eps, s_mix);
  if (threadIdx.x == 0) {
    for (int i = 0; i < hc; ++i) {
      s_pre[i] = sigmoid(s_mix[i] * p.scale[0] + p.base[i]) + p.hc_eps;
      post[i] = 2.0f * sigmoid(s_mix[hc + i] * p.scale[1] + p.base[hc + i]);
    }
    for (int i = 0; i < hc * hc; ++i)
      s_comb[i] = s_mix[2 * hc + i] * p.scale[2] + p.base[2 * hc + i];
    sinkhorn(s_comb, hc, p.sinkhorn_iters, p.hc_eps);
    for (int i = 0; i < hc * hc; ++i) comb[i] = s_comb[i];
  }
  __syncthreads();
  collapse(streams, s_pre, hc, p.d, p.norm, p.rms_eps, p.release, p.y + t * p.d);
}

__global__ void __launch_bounds__(kThreads) head_kernel(HcHead p) {
  __shared__ float s_mix[kMaxStreams];
  const std::int64_t t = blockIdx.x;
  const float* streams = p.streams + t * p.hc * p.d;
  scaled_fn(streams, p.hc * p.d, p.fn, p.hc, p.rms_eps, s_mix);
  if (threadIdx.x < p.hc)
    s_mix[threadIdx.x] = sigmoid(s_mix[threadIdx.x] * p.scale[0] + p.base[threadIdx.x]) + p.hc_eps;
  __syncthreads();
  collapse(streams, s_mix, p.hc, p.d, p.norm, p.rms_eps, p.release, p.y + t * p.d);
}

__global__ void mean_kernel(const float* streams, int hc, int d, bool release, float* y,
                            std::int64_t width) {
  __shared__ float s_share[kMaxStreams];
  const std::int64_t t = blockIdx.x;
  if (threadIdx.x < hc) s_share[threadIdx.x] = 1.0f / static_cast<float>(hc);
  __syncthreads();
  collapse(streams + t * hc * d, s_share, hc, d, nullptr, 0.0f, release, y + t * width);
}

}  // namespace

void launch_stream_mean(const float* streams, std::int64_t n, int hc, int d, bool release, float* y,
                        std::int64_t width, std::int64_t first, cudaStream_t stream) {
  mean_kernel<<<static_cast<unsigned>(n), kThreads, 0, stream>>>(streams, hc, d, release, y + first,
                                                                 width);
  NIBBLE_CUDA(cudaGetLastError());
}

void launch_hc_boundary(const Boundary& args, std::int64_t n, cudaStream_t stream) {
  boundary_kernel<<<static_cast<unsigned>(n), kThreads, 0, stream>>>(args);
  NIBBLE_CUDA(cudaGetLastError());
}

void launch_hc_head(const HcHead& args, std::int64_t n, cudaStream_t stream) {
  head_kernel<<<static_cast<unsigned>(n), kThreads, 0, stream>>>(args);
  NIBBLE_CUDA(cudaGetLastError());
}

void launch_hc_expand(float* streams, const float* out, const float* post, const float* comb,
                      std::int64_t n, int hc, int d, bool release, cudaStream_t stream) {
  expand_kernel<<<static_cast<unsigned>(n), kThreads, 0, stream>>>(streams, out, post, comb, hc, d,
                                                                   release);
  NIBBLE_CUDA(cudaGetLastError());
}

}  // namespace nibble::ops::cuda
