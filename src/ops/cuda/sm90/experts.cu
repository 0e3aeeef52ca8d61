// Routed and shared experts, MXFP4 or FP8 weights and FP8 activations (deepseek-v4.md 4, 6.2), for Hopper.
//
// Three launches: gate and up with SwiGLU -> hidden, down -> a part for each expert of each token, the parts of a token added in
// order. Bytes: 13.4 MB an expert of V4-Flash, read once for every 8 of its rows. Each block takes an equal run of the
// list of (expert, 64 rows) tiles, whole tiles, so no sum crosses blocks. A token's result is a function of its own row: the
// column that a token takes in an instruction and the tokens beside it do not change its bits.
#include <algorithm>

#include "ops/cuda/cuda_error.h"
#include "ops/cuda/sm90/experts.cuh"
#include "ops/cuda/sm90/launch.h"

namespace nibble::ops::cuda {
namespace {

using namespace sm90;

constexpr int kPlanThreads = 512;
constexpr int kCombineThreads = 256;
constexpr std::int64_t kMostTokens = 256;  // of one pass; more are cut

__global__ void __launch_bounds__(kPlanThreads) plan_kernel(PlanInput input, Plan plan) {
#ifdef NIBBLE_SM90
  extern __shared__ __align__(128) std::byte shared[];
  wait_for_predecessor();
  let_successor_start();
  make_plan(input, plan, reinterpret_cast<std::int32_t*>(shared));
#endif
}

// Both kernels read what `route` wrote: gate/up waits for it, and down cannot start before gate/up has waited.
template <bool kDown, int kTokens, bool kWhole>
__global__ void __launch_bounds__(kExpertThreads, 1) experts_kernel(const StreamedExperts p) {
#ifdef NIBBLE_SM90
  extern __shared__ __align__(128) std::byte shared[];
  const int blocks = static_cast<int>((kDown ? p.inner : p.d) / 128);
  const ExpertShared at = ExpertShared::of(blocks, kTokens);
  std::uint32_t barrier = shared_address(shared + at.barriers);
  const auto barriers = [&](int count) {
    barrier += 8 * count;
    return barrier - 8 * count;
  };
  const std::uint32_t ring_full = barriers(kExpertRing), ring_empty = barriers(kExpertRing),
                      exchange_full = barriers(2), exchange_free = barriers(2),
                      image_full = barriers(2), image_free = barriers(2);
  const Ring ring{shared_address(shared), ring_full, ring_empty, kExpertRing};
  const Exchange exchange{reinterpret_cast<float*>(shared + at.partial), exchange_full,
                          exchange_free, 8};
  const Handover handover{image_full, image_free};
  if (threadIdx.x == 0) {
    for (int i = 0; i < kExpertRing; ++i) {
      barrier_init(ring.full + 8 * i, 1);
      barrier_init(ring.empty + 8 * i, kConsumerWarps);
    }
    exchange.init();
    handover.init();
    barriers_visible();
  }
  if (!kDown) wait_for_predecessor();
  let_successor_start();
  Plan plan = p.plan;
  if (p.plan_input.slots() <= kMostLocalSlots) {
    plan.items = reinterpret_cast<Item*>(shared + at.plan_items);
    plan.slots = reinterpret_cast<std::int32_t*>(shared + at.plan_slots);
    plan.count = reinterpret_cast<std::int32_t*>(shared + at.plan_count);
    if (p.plan_input.slots() <= kWarp)
      make_tiny_plan(p.plan_input, plan);
    else
      make_small_plan(p.plan_input, plan, reinterpret_cast<std::int32_t*>(shared + at.scratch));
  }
  __syncthreads();
  // down: no block may end before gate/up has, so its consumers wait for it; see fill().
  const int tiles = static_cast<int>(kDown ? p.d / kTileRows : p.inner / kRowBlock),
            stages = blocks / kSegments;
  const TileRun run =
      TileRun::of(p.plan_input, *plan.count, tiles, stages * slots_a_stage(p.shared_format),
                  stages * slots_a_stage(p.routed_format));
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  if (warp == kConsumerWarps) {
    if (threadIdx.x % kWarp == 0) produce<kDown>(p, plan.items, run, ring);
    return;
  }
  Buffer<kTokens> buffers[2];
#pragma unroll
  for (int i = 0; i < 2; ++i)
    buffers[i] = {Fp8Image<kTokens>::at(shared + at.image[i], blocks),
                  reinterpret_cast<Item*>(shared + at.items[i]),
                  reinterpret_cast<std::int32_t*>(shared + at.rows[i]),
                  reinterpret_cast<float*>(shared + at.weights[i])};
  if (warp > kConsumerWarps)
    help<kDown, kTokens>(p, plan, run, buffers, handover);
  else
    consume<kDown, kTokens, kWhole>(p, plan, run, ring, exchange, buffers, handover);
#endif
}

// y = the parts of a token added in order, experts by ascending id, the shared one last. A thread four channels.
__global__ void __launch_bounds__(kCombineThreads)
    combine_kernel(const std::uint16_t* parts, int slots, std::int64_t d, std::int64_t all,
                   float* y) {
#ifdef NIBBLE_SM90
  wait_for_predecessor();
  let_successor_start();
  const std::int64_t i = 4 * (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x);
  if (i >= all) return;
  const std::int64_t token = i / d;
  float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  for (int j = 0; j < slots; ++j) {
    const float4 part = load_values(parts + (token * slots + j) * d + i % d);
    sum.x += part.x, sum.y += part.y, sum.z += part.z, sum.w += part.w;
  }
  *reinterpret_cast<float4*>(y + i) =
      make_float4(quant::bf16_round(sum.x), quant::bf16_round(sum.y), quant::bf16_round(sum.z),
                  quant::bf16_round(sum.w));
#endif
}

// One pass's buffers in the workspace, as offsets.
struct ExpertWorkspace {
  std::int64_t hidden = 0, parts, items, slots, count, bytes;

  ExpertWorkspace(const Experts& e, std::int64_t tokens) {
    const auto up = [](std::int64_t n) { return (n + 255) / 256 * 256; };
    const std::int64_t rows = tokens * (e.chosen + 1);
    parts = up(rows * e.inner * 2);
    items = parts + up(rows * e.d * 2);
    slots = items + up((rows + e.total) * static_cast<std::int64_t>(sizeof(Item)));
    count = slots + up(tokens * e.chosen * 4);
    bytes = count + 256;
  }
};

template <bool kDown, int kTokens>
void launch_pass(const StreamedExperts& p, cudaStream_t stream) {
  const std::int64_t cols = kDown ? p.inner : p.d;
  const auto bytes =
      static_cast<std::size_t>(ExpertShared::of(static_cast<int>(cols / 128), kTokens).bytes);
  if (cols / (128 * kSegments) % kExpertRing == 0)
    launch_dependent(experts_kernel<kDown, kTokens, true>, sm_count(), kExpertThreads, bytes,
                     stream, p);
  else
    launch_dependent(experts_kernel<kDown, kTokens, false>, sm_count(), kExpertThreads, bytes,
                     stream, p);
}

}  // namespace

bool streams_experts(const Experts& e, quant::Format routed) {
  const auto fp8 = [](quant::Format f) {
    return f == quant::Format::kMxfp4 || f == quant::Format::kFp8Block128;
  };
  const quant::Format shared = e.shared.w1.format;
  if (!e.release || !fp8(routed) || !fp8(shared) || e.chosen > 8 || e.total > 512) return false;
  return ExpertShared::of(static_cast<int>(std::max(e.d, e.inner) / 128), 16).bytes <= kMostShared;
}

void launch_streamed_experts(const Experts& e, quant::Format routed, std::int64_t n,
                             std::byte* workspace, cudaStream_t stream) {
  for (std::int64_t first = 0; first < n; first += kMostTokens) {
    const int tokens = static_cast<int>(std::min(kMostTokens, n - first)),
              shared_tile = tokens <= 8 || e.shared.w1.format == quant::Format::kMxfp4 ? 8 : 16;
    const std::int64_t slots = e.chosen + 1;
    const ExpertWorkspace at(e, tokens);
    auto* bytes = workspace;
    StreamedExperts p{e.x + first * e.d,
                      e.weights + first * e.chosen,
                      e.routed,
                      e.shared,
                      routed,
                      e.shared.w1.format,
                      reinterpret_cast<std::uint16_t*>(bytes + at.hidden),
                      reinterpret_cast<std::uint16_t*>(bytes + at.parts),
                      e.d,
                      e.inner,
                      e.limit,
                      {e.experts + first * e.chosen, tokens, e.chosen, e.total, 8, shared_tile},
                      {reinterpret_cast<Item*>(bytes + at.items),
                       reinterpret_cast<std::int32_t*>(bytes + at.slots),
                       reinterpret_cast<std::int32_t*>(bytes + at.count)}};
    if (p.plan_input.slots() > kMostLocalSlots)
      launch_dependent(plan_kernel, 1, kPlanThreads,
                       static_cast<std::size_t>(p.plan_input.scratch_bytes()), stream, p.plan_input,
                       p.plan);
    if (shared_tile == 8) {
      launch_pass<false, 8>(p, stream);
      launch_pass<true, 8>(p, stream);
    } else {
      launch_pass<false, 16>(p, stream);
      launch_pass<true, 16>(p, stream);
    }
    const std::int64_t all = tokens * e.d;
    launch_dependent(
        combine_kernel, static_cast<int>((all / 4 + kCombineThreads - 1) / kCombineThreads),
        kCombineThreads, 0, stream, p.parts, static_cast<int>(slots), e.d, all, e.y + first * e.d);
  }
}

std::int64_t expert_workspace_bytes(const Experts& e, std::int64_t n) {
  return ExpertWorkspace(e, std::min(n, kMostTokens)).bytes;
}

}  // namespace nibble::ops::cuda
