// The router's choice from its logits (deepseek-v4.md 4): a warp a token, its scores in registers.
#include "ops/cuda/cuda_error.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/numerics.cuh"
#include "ops/cuda/sm90/launch.h"
#include "ops/cuda/sm90/ptx.cuh"

namespace nibble::ops::cuda {
namespace {

using namespace sm90;

constexpr int kThreads = 128;
constexpr int kMostPerLane = 16;  // experts

// Ties go to the lower id. Where nothing above -inf is left (a router that produced NaN), choice j is expert j, in range.
__global__ void __launch_bounds__(kThreads) choose_kernel(Route p, std::int64_t n) {
#ifdef NIBBLE_SM90
  wait_for_predecessor();
  let_successor_start();
  const std::int64_t t = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / kWarp;
  if (t >= n) return;
  const int lane = threadIdx.x % kWarp, count = static_cast<int>(p.gate.rows);
  if (p.ids && p.ids[t] < 0) {  // a padding row
    if (lane < p.chosen) {
      p.experts[t * p.chosen + lane] = -1;
      p.weights[t * p.chosen + lane] = 0.0f;
    }
    return;
  }
  float biased[kMostPerLane];
#pragma unroll
  for (int i = 0; i < kMostPerLane; ++i) {
    const int e = i * kWarp + lane;
    biased[i] = e < count ? p.logits[t * count + e] : 0.0f;
  }
#pragma unroll
  for (int i = 0; i < kMostPerLane; ++i) {
    const int e = i * kWarp + lane;
    biased[i] = e < count ? router_score(biased[i]) + (p.bias ? p.bias[e] : 0.0f) : -INFINITY;
  }
  int chosen = 0x7FFFFFFF;  // of lane j: choice j
  for (int j = 0; j < p.chosen; ++j) {
    float best = -INFINITY;
    int at = count;
#pragma unroll
    for (int i = 0; i < kMostPerLane; ++i)
      if (biased[i] > best) best = biased[i], at = i * kWarp + lane;
#pragma unroll
    for (int offset = kWarp / 2; offset > 0; offset /= 2) {
      const float other = __shfl_xor_sync(0xFFFFFFFFu, best, offset);
      const int other_at = __shfl_xor_sync(0xFFFFFFFFu, at, offset);
      if (other > best || (other == best && other_at < at)) best = other, at = other_at;
    }
    if (at >= count) at = j;
    if (lane == j)
      chosen = p.hash_table ? p.hash_table[static_cast<std::int64_t>(p.ids[t]) * p.chosen + j] : at;
#pragma unroll
    for (int i = 0; i < kMostPerLane; ++i)
      if (at == i * kWarp + lane) biased[i] = -INFINITY;
  }
  // Ascending ids; equal ones (a hash table may repeat) by their place.
  int rank = 0;
  for (int j = 0; j < p.chosen; ++j) {
    const int other = __shfl_sync(0xFFFFFFFFu, chosen, j);
    rank += other < chosen || (other == chosen && j < lane);
  }
  const float score = lane < p.chosen ? router_score(p.logits[t * count + chosen]) : 0.0f;
  float sum = 0.0f;
  for (int r = 0; r < p.chosen; ++r) {
    const int owner = __ffs(__ballot_sync(0xFFFFFFFFu, lane < p.chosen && rank == r)) - 1;
    sum += __shfl_sync(0xFFFFFFFFu, score, owner);
  }
  if (lane >= p.chosen) return;
  p.experts[t * p.chosen + rank] = chosen;
  p.weights[t * p.chosen + rank] = score / sum * p.scaling;
#endif
}

}  // namespace

bool chooses_in_registers(const Route& args) {
  return args.logits && args.gate.rows <= kMostPerLane * kWarp && args.chosen <= kWarp;
}

void launch_choose(const Route& args, std::int64_t n, cudaStream_t stream) {
  launch_dependent(choose_kernel, static_cast<int>((n * kWarp + kThreads - 1) / kThreads), kThreads,
                   0, stream, args, n);
}

}  // namespace nibble::ops::cuda
