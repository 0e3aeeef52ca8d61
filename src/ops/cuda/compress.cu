// Compressors and the lightning indexer (deepseek-v4.md 3.5 to 3.7).
#include "ops/cuda/cuda_error.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/numerics.cuh"
#include "ops/cuda/rows.cuh"

namespace nibble::ops::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kSelectThreads = 512;

__device__ void store_state(const Compress& p, std::int64_t n) {
  const std::int64_t position = p.rows.position(n), to = p.state_at(p.rows.of(n).slot, position);
  for (int d = threadIdx.x; d < p.state.width; d += blockDim.x) {
    p.state.values[to + d] = p.values[n * p.state.width + d];
    p.state.gates[to + d] =
        p.gates[n * p.state.width + d] + p.ape[position % p.ratio * p.state.width + d];
  }
}

// A block a row of the batch; those whose token closes an entry make it, a thread a channel, tokens in order: those of the step
// from the batch, earlier ones from the ring. Rows of segments that fit_ring() go into the ring here, since that overwrites
// nothing which a row of the same segment reads: at most positions up to its first one less 2 * ratio (ratio).
__global__ void compress_kernel(Compress p) {
  extern __shared__ float s_entry[];  // [width]
  const std::int64_t n = blockIdx.x, position = p.rows.position(n);
  if (p.rows.padding(n)) return;
  const Segment& seg = p.rows.of(n);
  if (fits_ring(seg)) store_state(p, n);
  if ((position + 1) % p.ratio != 0) return;
  const std::int64_t w = position / p.ratio;
  const int width = p.entries.width, stored = p.state.width;
  const bool before = p.overlap && w > 0;  // the first halves of window w - 1
  const int count = before ? 2 * p.ratio : p.ratio;
  const std::int64_t oldest = p.ratio * (before ? w - 1 : w);
  for (int d = threadIdx.x; d < width; d += blockDim.x) {
    const auto channel = [&](int j) {
      return d + (p.overlap && !(before && j < p.ratio) ? width : 0);
    };
    const auto value = [&](int j) {
      const std::int64_t at = oldest + j;
      return at >= seg.position
                 ? p.values[(seg.first_row + at - seg.position) * stored + channel(j)]
                 : p.state.values[p.state_at(seg.slot, at) + channel(j)];
    };
    const auto gate = [&](int j) {
      const std::int64_t at = oldest + j;
      return at >= seg.position
                 ? p.gates[(seg.first_row + at - seg.position) * stored + channel(j)] +
                       p.ape[at % p.ratio * stored + channel(j)]
                 : p.state.gates[p.state_at(seg.slot, at) + channel(j)];
    };
    float top = -INFINITY, sum = 0.0f, acc = 0.0f;
    for (int j = 0; j < count; ++j) top = fmaxf(top, gate(j));
    for (int j = 0; j < count; ++j) {
      const float weight = expf(gate(j) - top);
      sum += weight;
      acc += weight * value(j);
    }
    const float entry = acc / sum;
    s_entry[d] = p.release ? quant::bf16_round(entry) : entry;
  }
  __syncthreads();
  rms_norm_row(s_entry, p.norm, width, p.eps, p.release, s_entry);
  rope_row(s_entry, width, p.ratio * w, p.rope, 1.0f, p.release);
  store_row(p.entries, p.entries.entry(p.rows.pages + seg.first_page, w), s_entry);
}

// The last rows of the other segments, once their entries are closed.
__global__ void store_state_kernel(Compress p) {
  const std::int64_t n = blockIdx.x;
  const Segment& seg = p.rows.of(n);
  if (!fits_ring(seg) && n - seg.first_row >= seg.rows - p.state.ring) store_state(p, n);
}

// A block a head: rotation and, for FP4 keys, the keys' own grid.
__global__ void index_query_kernel(Select p) {
  const std::int64_t n = blockIdx.x / p.heads;
  if (p.visible(n) <= p.topk) return;
  const int width = p.keys.width;
  float* q = p.q + static_cast<std::int64_t>(blockIdx.x) * width;
  rope_row(q, width, p.rows.position(n), p.rope, 1.0f, p.release);
  if (p.keys.format != RowFormat::kFp4Index) return;
  hadamard_row(q, width);
  bf16_round_row(q, width);
  for (int block = threadIdx.x / kWarp; block < width / kFp4IndexBlock;
       block += blockDim.x / kWarp) {
    float& x = q[block * kFp4IndexBlock + threadIdx.x % kWarp];
    const std::uint8_t scale = fp4_group_scale(x);
    x = e2m1_value(quant::e2m1_encode(x * quant::e8m0_reciprocal(scale))) *
        quant::e8m0_decode(scale);
  }
}

// A warp an entry: heads in order, each a dot product over the lanes.
__global__ void index_score_kernel(Select p) {
  const std::int64_t n = blockIdx.y,
                     w = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / kWarp;
  const std::int64_t visible = p.visible(n);
  if (visible <= p.topk || w >= visible) return;
  const int lane = threadIdx.x % kWarp, width = p.keys.width;
  const std::byte* row = p.keys.entry(p.rows.pages + p.rows.of(n).first_page, w);
  float sum = 0.0f;
  for (int h = 0; h < p.heads; ++h) {
    const float* q = p.q + (n * p.heads + h) * width;
    float dot = 0.0f;
    for (int d = lane; d < width; d += kWarp) dot = fmaf(q[d], row_at(p.keys, row, d), dot);
    sum += p.weights[n * p.heads + h] * fmaxf(warp_sum(dot), 0.0f);
  }
  if (lane == 0) p.scores[n * p.most + w] = sum;
}

// A block a query. The topk-th largest score by radix: eight bits of it a pass, from the top; then the entries above it and the
// lowest ids of those equal to it, in ascending order.
__global__ void __launch_bounds__(kSelectThreads) index_select_kernel(Select p) {
  __shared__ std::uint32_t s_count[256];
  __shared__ std::uint32_t s_prefix, s_left, s_base[2];
  __shared__ std::uint32_t s_warp[2][kSelectThreads / kWarp];
  const std::int64_t n = blockIdx.x, visible = p.visible(n);
  std::int32_t* out = p.selected + n * p.topk;
  if (visible <= p.topk) {
    for (int i = threadIdx.x; i < p.topk; i += blockDim.x) out[i] = i < visible ? i : -1;
    return;
  }
  const float* score = p.scores + n * p.most;
  if (threadIdx.x == 0) {
    s_prefix = 0;
    s_left = static_cast<std::uint32_t>(p.topk);  // still to be found among those with the prefix
  }
  for (int shift = 24; shift >= 0; shift -= 8) {
    for (int i = threadIdx.x; i < 256; i += blockDim.x) s_count[i] = 0;
    __syncthreads();
    const std::uint32_t prefix = s_prefix, mask = shift == 24 ? 0u : 0xFFFFFFFFu << (shift + 8);
    for (std::int64_t w = threadIdx.x; w < visible; w += blockDim.x) {
      const std::uint32_t key = sortable(score[w]);
      if ((key & mask) == prefix) atomicAdd(&s_count[(key >> shift) & 0xFFu], 1u);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      std::uint32_t left = s_left;
      int digit = 255;
      for (; digit > 0 && s_count[digit] < left; --digit) left -= s_count[digit];
      s_prefix = prefix | static_cast<std::uint32_t>(digit) << shift;
      s_left = left;
    }
    __syncthreads();
  }
  const std::uint32_t threshold = s_prefix, equal_wanted = s_left;
  if (threadIdx.x < 2) s_base[threadIdx.x] = 0;
  __syncthreads();
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  for (std::int64_t begin = 0; begin < visible; begin += blockDim.x) {
    const std::int64_t w = begin + threadIdx.x;
    const std::uint32_t key = w < visible ? sortable(score[w]) : 0u;
    const bool above = w < visible && key > threshold, equal = w < visible && key == threshold;
    // Entries before this one that are above, or equal to, the threshold.
    const std::uint32_t above_lanes = __ballot_sync(0xFFFFFFFFu, above),
                        equal_lanes = __ballot_sync(0xFFFFFFFFu, equal);
    const std::uint32_t lower = (1u << lane) - 1u;
    if (lane == 0) {
      s_warp[0][warp] = static_cast<std::uint32_t>(__popc(above_lanes));
      s_warp[1][warp] = static_cast<std::uint32_t>(__popc(equal_lanes));
    }
    __syncthreads();
    std::uint32_t above_before =
        s_base[0] + static_cast<std::uint32_t>(__popc(above_lanes & lower));
    std::uint32_t equal_before =
        s_base[1] + static_cast<std::uint32_t>(__popc(equal_lanes & lower));
    for (int i = 0; i < warp; ++i) {
      above_before += s_warp[0][i];
      equal_before += s_warp[1][i];
    }
    if (above || (equal && equal_before < equal_wanted))
      out[above_before + min(equal_before, equal_wanted)] = static_cast<std::int32_t>(w);
    __syncthreads();
    if (threadIdx.x < 2)
      for (int i = 0; i < kSelectThreads / kWarp; ++i)
        s_base[threadIdx.x] += s_warp[threadIdx.x][i];
    __syncthreads();
  }
}

}  // namespace

void launch_compress(const Compress& args, std::int64_t n, bool all_fit, cudaStream_t stream) {
  const std::size_t shared = static_cast<std::size_t>(args.entries.width) * sizeof(float);
  compress_kernel<<<static_cast<unsigned>(n), kThreads, shared, stream>>>(args);
  NIBBLE_CUDA(cudaGetLastError());
  if (all_fit) return;
  store_state_kernel<<<static_cast<unsigned>(n), kThreads, 0, stream>>>(args);
  NIBBLE_CUDA(cudaGetLastError());
}

void launch_index_select(const Select& args, std::int64_t n, cudaStream_t stream) {
  if (args.most > args.topk) {
    index_query_kernel<<<static_cast<unsigned>(n * args.heads), kThreads, 0, stream>>>(args);
    NIBBLE_CUDA(cudaGetLastError());
    const dim3 grid(static_cast<unsigned>((args.most * kWarp + kThreads - 1) / kThreads),
                    static_cast<unsigned>(n));
    index_score_kernel<<<grid, kThreads, 0, stream>>>(args);
    NIBBLE_CUDA(cudaGetLastError());
  }
  index_select_kernel<<<static_cast<unsigned>(n), kSelectThreads, 0, stream>>>(args);
  NIBBLE_CUDA(cudaGetLastError());
}

}  // namespace nibble::ops::cuda
