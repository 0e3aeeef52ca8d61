// Queries, window rows, sparse attention (deepseek-v4.md 3.1 to 3.4).
#include "ops/cuda/cuda_error.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/numerics.cuh"
#include "ops/cuda/rows.cuh"

namespace nibble::ops::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kAttentionThreads = 256;
constexpr std::size_t kSharedBytes = 48 << 10;  // without asking for more

__global__ void query_kernel(float* q, BatchRows rows, int heads, int hd, float eps, RopeTable rope,
                             bool release) {
  const std::int64_t n = blockIdx.x / heads;
  if (rows.padding(n)) return;
  float* x = q + static_cast<std::int64_t>(blockIdx.x) * hd;
  if (release) {
    // bf16 arithmetic as published: see query_norm_row in ops/ref/rounding.h.
    float square = 0.0f;
    for (int i = threadIdx.x; i < hd; i += blockDim.x) square += quant::bf16_round(x[i] * x[i]);
    const float mean = quant::bf16_round(block_sum(square) / static_cast<float>(hd));
    const float s = quant::bf16_round(1.0f / sqrtf(quant::bf16_round(mean + eps)));
    for (int i = threadIdx.x; i < hd; i += blockDim.x) x[i] = quant::bf16_round(x[i] * s);
    __syncthreads();
  } else {
    rms_norm_row(x, nullptr, hd, eps, false, x);
  }
  rope_row(x, hd, rows.position(n), rope, 1.0f, release);
}

__global__ void window_kernel(const float* kv, BatchRows rows, const float* norm, float eps,
                              RopeTable rope, Pool step, Pool window, bool release) {
  extern __shared__ float s_row[];  // [width]
  const int n = blockIdx.x, hd = window.width;
  if (rows.padding(n)) return;
  const Segment& seg = rows.of(n);
  const std::int64_t position = rows.position(n);
  rms_norm_row(kv + static_cast<std::int64_t>(n) * hd, norm, hd, eps, release, s_row);
  rope_row(s_row, hd, position, rope, 1.0f, release);
  store_row(step, step.row(0, n), s_row);
  if (fits_ring(seg)) store_row(window, window.at_position(seg.slot, position), s_row);
}

// A block a row: the last ones of long segments.
__global__ void window_commit_kernel(BatchRows rows, Pool step, Pool window) {
  const int n = blockIdx.x;
  const Segment& seg = rows.of(n);
  if (fits_ring(seg) || n - seg.first_row < seg.rows - window.group_rows) return;
  const std::byte* from = step.row(0, n);
  std::byte* to = window.at_position(seg.slot, rows.position(n));
  for (std::int64_t i = threadIdx.x; i < step.row_bytes; i += blockDim.x) to[i] = from[i];
}

// A block one head of one query; its scores in shared memory, keys in canonical order: window rows, then entries. Sums over
// keys: the denominator by threads striding over keys, the output key after key.
__global__ void __launch_bounds__(kAttentionThreads) attention_kernel(Attention p) {
  extern __shared__ float s_score[];  // [keys]
  const std::int64_t n = blockIdx.x / p.heads;
  const int h = blockIdx.x % p.heads, warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp,
            warps = blockDim.x / kWarp;
  float* o = p.o + (n * p.heads + h) * p.hd;
  if (p.rows.padding(n)) {
    for (int d = threadIdx.x; d < p.hd; d += blockDim.x) o[d] = 0.0f;
    return;
  }
  const Segment& seg = p.rows.of(n);
  const std::int64_t t = p.rows.position(n);
  const std::int64_t first = max(static_cast<std::int64_t>(0),
                                 p.whole_segment ? std::int64_t{seg.position} - p.window
                                                 : t - p.window + 1);
  const std::int64_t last = p.whole_segment ? std::int64_t{seg.position} + seg.rows - 1 : t;
  const int in_window = static_cast<int>(last - first + 1);
  __shared__ int s_entries;
  if (threadIdx.x == 0) {
    int count = 0;
    if (p.selected)
      while (count < p.topk && p.selected[n * p.topk + count] >= 0) ++count;
    else if (p.entries.data)
      count = static_cast<int>((t + 1) / p.ratio);
    s_entries = count;
  }
  __syncthreads();
  const int keys = in_window + s_entries;
  const auto key_row = [&](int j, const Pool*& pool) {
    if (j < in_window) {
      pool = &p.window_rows;
      const std::int64_t position = first + j;
      return position >= seg.position ? p.step.row(0, seg.first_row + position - seg.position)
                                      : p.window_rows.at_position(seg.slot, position);
    }
    pool = &p.entries;
    const int w = j - in_window;
    return p.entries.entry(p.rows.pages + seg.first_page,
                           p.selected ? p.selected[n * p.topk + w] : w);
  };
  const float* q = p.q + (n * p.heads + h) * p.hd;
  float top = -INFINITY;
  for (int j = warp; j < keys; j += warps) {
    const Pool* pool;
    const std::byte* row = key_row(j, pool);
    float dot = 0.0f;
    for (int d = lane; d < p.hd; d += kWarp) dot = fmaf(q[d], row_at(*pool, row, d), dot);
    dot = warp_sum(dot) * p.scale;
    if (lane == 0) s_score[j] = dot;
    top = fmaxf(top, dot);
  }
  top = block_max(top);  // the sink is not part of it
  float sum = 0.0f;
  for (int j = threadIdx.x; j < keys; j += blockDim.x) {
    const float numerator = expf(s_score[j] - top);
    sum += numerator;
    s_score[j] = p.release ? quant::bf16_round(numerator) : numerator;
  }
  sum = block_sum(sum) + expf(p.sink[h] - top);
  for (int d = threadIdx.x; d < p.hd; d += blockDim.x) {
    float value = 0.0f;
    for (int j = 0; j < keys; ++j) {
      const Pool* pool;
      const std::byte* row = key_row(j, pool);
      value = fmaf(s_score[j], row_at(*pool, row, d), value);
    }
    value /= sum;
    o[d] = p.release ? quant::bf16_round(value) : value;
  }
  __syncthreads();
  rope_row(o, p.hd, t, p.rope, -1.0f, p.release);
}

}  // namespace

void launch_query_norm_rope(float* q, std::int64_t n, BatchRows rows, int heads, int hd, float eps,
                            RopeTable rope, bool release, cudaStream_t stream) {
  query_kernel<<<static_cast<unsigned>(n * heads), kThreads, 0, stream>>>(q, rows, heads, hd, eps,
                                                                          rope, release);
  NIBBLE_CUDA(cudaGetLastError());
}

void launch_window_insert(const float* kv, std::int64_t n, BatchRows rows, const float* norm,
                          float eps, RopeTable rope, const Pool& step, const Pool& window,
                          bool release, cudaStream_t stream) {
  const std::size_t shared = static_cast<std::size_t>(window.width) * sizeof(float);
  window_kernel<<<static_cast<unsigned>(n), kThreads, shared, stream>>>(kv, rows, norm, eps, rope,
                                                                        step, window, release);
  NIBBLE_CUDA(cudaGetLastError());
}

void launch_window_commit(std::int64_t n, BatchRows rows, const Pool& step, const Pool& window,
                          cudaStream_t stream) {
  window_commit_kernel<<<static_cast<unsigned>(n), kThreads, 0, stream>>>(rows, step, window);
  NIBBLE_CUDA(cudaGetLastError());
}

void launch_sparse_attention(const Attention& args, std::int64_t n, std::int64_t most_keys,
                             cudaStream_t stream) {
  const std::size_t shared = static_cast<std::size_t>(most_keys) * sizeof(float);
  // The limit only grows: graphs that were made with a larger one still run.
  static std::size_t limit = kSharedBytes;
  if (shared > limit) {
    NIBBLE_CUDA(cudaFuncSetAttribute(attention_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(shared)));
    limit = shared;
  }
  attention_kernel<<<static_cast<unsigned>(n * args.heads), kAttentionThreads, shared, stream>>>(
      args);
  NIBBLE_CUDA(cudaGetLastError());
}

}  // namespace nibble::ops::cuda
