// Router and experts (deepseek-v4.md 4).
#include "ops/cuda/cuda_error.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/matrix.cuh"
#include "ops/cuda/numerics.cuh"

namespace nibble::ops::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kGroup = 128;  // channels of an activation that share a scale

// A block a token: scores by warps, then the choice by the first warp, one expert a round, ties to the lower id.
__global__ void __launch_bounds__(kThreads) route_kernel(Route p) {
  extern __shared__ float s_score[];  // [2, E]: the scores, and those still to be chosen from
  __shared__ std::int32_t s_chosen[kMaxChosen];
  const std::int64_t t = blockIdx.x;
  const int count = static_cast<int>(p.gate.rows), lane = threadIdx.x % kWarp;
  float* s_biased = s_score + count;
  if (p.ids && p.ids[t] < 0) {
    for (int j = threadIdx.x; j < p.chosen; j += blockDim.x) {
      p.experts[t * p.chosen + j] = -1;
      p.weights[t * p.chosen + j] = 0.0f;
    }
    return;
  }
  for (int e = threadIdx.x / kWarp; e < count; e += blockDim.x / kWarp) {
    float dot[1];
    warp_dots<1>(p.gate, e, p.x + t * p.gate.cols, p.gate.cols, 1, dot);
    if (lane == 0) {
      s_score[e] = router_score(dot[0]);
      s_biased[e] = p.bias ? s_score[e] + p.bias[e] : 0.0f;
    }
  }
  __syncthreads();
  if (threadIdx.x >= kWarp) return;
  if (p.hash_table) {
    if (lane < p.chosen)
      s_chosen[lane] = p.hash_table[static_cast<std::int64_t>(p.ids[t]) * p.chosen + lane];
  } else {
    for (int j = 0; j < p.chosen; ++j) {
      float best = -INFINITY;
      int at = count;
      for (int e = lane; e < count; e += kWarp)
        if (s_biased[e] > best || (s_biased[e] == best && e < at)) best = s_biased[e], at = e;
      for (int offset = kWarp / 2; offset > 0; offset /= 2) {
        const float other = __shfl_xor_sync(0xFFFFFFFFu, best, offset);
        const int other_at = __shfl_xor_sync(0xFFFFFFFFu, at, offset);
        if (other > best || (other == best && other_at < at)) best = other, at = other_at;
      }
      // Nothing above -inf is left where a router produced NaN: the lowest ids, so that no index is out of range.
      if (at >= count) at = j;
      __syncwarp();  // all lanes have read their candidates
      if (lane == 0) {
        s_chosen[j] = at;
        s_biased[at] = -INFINITY;
      }
      __syncwarp();
    }
  }
  __syncwarp();
  if (lane != 0) return;
  for (int i = 1; i < p.chosen; ++i)  // ascending ids
    for (int j = i; j > 0 && s_chosen[j] < s_chosen[j - 1]; --j) {
      const std::int32_t swap = s_chosen[j];
      s_chosen[j] = s_chosen[j - 1];
      s_chosen[j - 1] = swap;
    }
  float sum = 0.0f;
  for (int j = 0; j < p.chosen; ++j) sum += s_score[s_chosen[j]];
  for (int j = 0; j < p.chosen; ++j) {
    p.experts[t * p.chosen + j] = s_chosen[j];
    p.weights[t * p.chosen + j] = s_score[s_chosen[j]] / sum * p.scaling;
  }
}

// A warp a hidden channel of one slot.
__global__ void __launch_bounds__(kThreads) gate_up_kernel(Experts p) {
  const std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / kWarp;
  const std::int64_t t = blockIdx.y;
  const int j = blockIdx.z;
  if (p.padding(t)) return;
  const ExpertMatrices& e = p.at(t, j);
  if (i >= e.w1.rows) return;
  float gate[1], up[1];
  const auto input = [&](const Matrix& w) {
    return (p.release && takes_fp8(w.format) ? p.x_fp8 : p.x) + t * p.d;
  };
  warp_dots<1>(e.w1, i, input(e.w1), p.d, 1, gate);
  warp_dots<1>(e.w3, i, input(e.w3), p.d, 1, up);
  if (threadIdx.x % kWarp != 0) return;
  const float g = fminf(p.release ? quant::bf16_round(gate[0]) : gate[0], p.limit);
  const float u = fminf(fmaxf(p.release ? quant::bf16_round(up[0]) : up[0], -p.limit), p.limit);
  const float weight = j < p.chosen ? p.weights[t * p.chosen + j] : 1.0f;
  const float h = weight * (g / (1.0f + expf(-g)) * u);
  p.hidden[(t * (p.chosen + 1) + j) * p.inner + i] = p.release ? quant::bf16_round(h) : h;
}

// In place, where the slot's w2 takes FP8: a warp a group of 128 channels.
__global__ void __launch_bounds__(kThreads)
    round_hidden_kernel(Experts p, std::int64_t groups, std::int64_t all_groups) {
  const std::int64_t group =
      (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / kWarp;
  if (group >= all_groups) return;
  const std::int64_t slot = group / groups, first = group % groups * kGroup;
  if (p.padding(slot / (p.chosen + 1))) return;
  if (!takes_fp8(p.at(slot / (p.chosen + 1), static_cast<int>(slot % (p.chosen + 1))).w2.format))
    return;
  float* values = p.hidden + slot * p.inner + first;
  const int count = static_cast<int>(min(static_cast<std::int64_t>(kGroup), p.inner - first));
  fp8_round_group(values, count, values);
}

__global__ void __launch_bounds__(kThreads) down_kernel(Experts p) {
  const std::int64_t r = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / kWarp;
  if (r >= p.d) return;
  const std::int64_t t = blockIdx.y, slot = t * (p.chosen + 1) + blockIdx.z;
  if (p.padding(t)) return;
  float sum[1];
  warp_dots<1>(p.at(t, blockIdx.z).w2, r, p.hidden + slot * p.inner, p.inner, 1, sum);
  if (threadIdx.x % kWarp == 0)
    p.parts[slot * p.d + r] = p.release ? quant::bf16_round(sum[0]) : sum[0];
}

// Slots in order: experts by ascending id, the shared one last.
__global__ void __launch_bounds__(kThreads) combine_kernel(Experts p) {
  const std::int64_t t = blockIdx.y,
                     i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= p.d) return;
  float sum = 0.0f;
  for (int j = 0; j <= p.chosen && !p.padding(t); ++j)
    sum += p.parts[(t * (p.chosen + 1) + j) * p.d + i];
  p.y[t * p.d + i] = p.release ? quant::bf16_round(sum) : sum;
}

unsigned blocks_of(std::int64_t work) {
  return static_cast<unsigned>((work + kThreads - 1) / kThreads);
}

}  // namespace

void launch_route(const Route& args, std::int64_t n, cudaStream_t stream) {
  const std::size_t shared = 2 * static_cast<std::size_t>(args.gate.rows) * sizeof(float);
  route_kernel<<<static_cast<unsigned>(n), kThreads, shared, stream>>>(args);
  NIBBLE_CUDA(cudaGetLastError());
}

void launch_experts(const Experts& args, std::int64_t n, cudaStream_t stream) {
  const auto tokens = static_cast<unsigned>(n), slots = static_cast<unsigned>(args.chosen + 1);
  gate_up_kernel<<<dim3(blocks_of(args.inner * kWarp), tokens, slots), kThreads, 0, stream>>>(args);
  NIBBLE_CUDA(cudaGetLastError());
  if (args.release) {
    const std::int64_t groups = (args.inner + kGroup - 1) / kGroup, all = n * slots * groups;
    round_hidden_kernel<<<blocks_of(all * kWarp), kThreads, 0, stream>>>(args, groups, all);
    NIBBLE_CUDA(cudaGetLastError());
  }
  down_kernel<<<dim3(blocks_of(args.d * kWarp), tokens, slots), kThreads, 0, stream>>>(args);
  NIBBLE_CUDA(cudaGetLastError());
  combine_kernel<<<dim3(blocks_of(args.d), tokens), kThreads, 0, stream>>>(args);
  NIBBLE_CUDA(cudaGetLastError());
}

}  // namespace nibble::ops::cuda
