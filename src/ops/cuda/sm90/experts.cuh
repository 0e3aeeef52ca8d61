// The two streaming kernels of the experts: gate and up with SwiGLU, then down. See experts.cu.
#pragma once

#include "ops/cuda/kernels.h"
#include "ops/cuda/sm90/multiply.cuh"
#include "ops/cuda/sm90/plan.cuh"

namespace nibble::ops::cuda::sm90 {

inline constexpr int kMostLocalSlots =
    128;  // sorted by each block itself; more by a launch of its own
inline constexpr int kExpertRing =
    4;  // slots: 68 KB in flight, the best of h200-moe-measurements.md
inline constexpr int kHelperWarps = 3;
inline constexpr int kExpertThreads = (kConsumerWarps + 1 + kHelperWarps) * kWarp;

struct StreamedExperts {
  const float* x;        // [tokens, d]
  const float* weights;  // [tokens, chosen]
  const ExpertMatrices* routed;
  ExpertMatrices shared;
  quant::Format routed_format, shared_format;
  std::uint16_t* hidden;  // bf16 [tokens, chosen + 1, inner]
  std::uint16_t* parts;   // bf16 [tokens, chosen + 1, d]
  std::int64_t d, inner;
  float limit;
  PlanInput plan_input;
  Plan plan;  // in device memory; unused where the blocks sort for themselves
};

// Where things lie in dynamic shared memory. The plan is made where the second image comes later.
struct ExpertShared {
  int ring = 0, image[2], partial, items[2], rows[2], weights[2], barriers, plan_items, plan_slots,
      plan_count, scratch, bytes;

  __host__ __device__ static ExpertShared of(int blocks, int tokens) {
    const auto up = [](int n) { return (n + 127) / 128 * 128; };
    const int image = up(blocks * tokens * (128 + 4)), plan = 3 * kMostLocalSlots * 4;
    ExpertShared s;
    int at = kExpertRing * kSlotBytes;
    for (int i = 0; i < 2; ++i) {
      s.image[i] = at;
      at += image;
    }
    s.scratch = s.image[1];
    if (image < plan) at += plan - image;
    s.partial = at;
    at += exchange_bytes(8);
    for (int i = 0; i < 2; ++i) {
      s.items[i] = at;
      s.rows[i] = at + 16;
      s.weights[i] = at + 16 + tokens * 4;
      at += 16 + tokens * 8;
    }
    s.barriers = at;
    at += (2 * kExpertRing + kExchangeBarriers + 4) * 8;
    s.plan_count = at;
    s.plan_items = at + 16;
    s.plan_slots = s.plan_items + (kMostLocalSlots + 16) * static_cast<int>(sizeof(Item));
    s.bytes = s.plan_slots + kMostLocalSlots * 4;
    return s;
  }
};

#ifdef NIBBLE_SM90

// The tiles of 64 rows of all items, shared ones first, and this block's run of them: equal shares of the slots streamed, those
// with 16 tokens counted a quarter more. 32-bit: less than 2^28 in all.
struct TileRun {
  int begin, end, tiles_an_item;

  __device__ static TileRun of(const PlanInput& plan, int items, int tiles_an_item,
                               int shared_slots, int routed_slots) {
    const auto shared = static_cast<unsigned>(plan.shared_items() * tiles_an_item),
               routed = static_cast<unsigned>(items * tiles_an_item) - shared,
               shared_cost = static_cast<unsigned>(shared_slots) * (plan.shared_tile > 8 ? 5 : 4),
               routed_cost = static_cast<unsigned>(routed_slots) * 4, border = shared * shared_cost,
               all = border + routed * routed_cost, each = all / gridDim.x, rest = all % gridDim.x;
    const auto first_at = [&](unsigned block) {
      const unsigned cost = each * block + rest * block / gridDim.x;
      return static_cast<int>(cost <= border
                                  ? (cost + shared_cost - 1) / shared_cost
                                  : shared + (cost - border + routed_cost - 1) / routed_cost);
    };
    return {first_at(blockIdx.x), first_at(blockIdx.x + 1), tiles_an_item};
  }
};

template <bool kDown>
__device__ inline void produce(const StreamedExperts& p, const Item* items, const TileRun& run,
                               Ring ring) {
  const std::uint64_t policy = evict_first();
  for (int at = run.begin; at < run.end;) {
    const int item = at / run.tiles_an_item, end = min(run.end, (item + 1) * run.tiles_an_item);
    const int expert = items[item].expert;
    const ExpertMatrices& e = expert < 0 ? p.shared : p.routed[expert];
    const auto* first = static_cast<const std::byte*>(kDown ? e.w2.data : e.w1.data);
    const auto* second = static_cast<const std::byte*>(kDown ? e.w2.data : e.w3.data);
    const quant::Format format = expert < 0 ? p.shared_format : p.routed_format;
    const int stages = static_cast<int>((kDown ? p.inner : p.d) / (kSegments * block_cols(format)));
    const std::int64_t row_block = static_cast<std::int64_t>(stages) * chunk_bytes(format);
    for (; at < end; ++at) {
      const std::int64_t tile = at % run.tiles_an_item;
      if (kDown)
        produce_tile(ring, format, first + 2 * tile * row_block,
                     second + (2 * tile + 1) * row_block, stages, policy);
      else
        produce_tile(ring, format, first + tile * row_block, second + tile * row_block, stages,
                     policy);
    }
  }
}

__device__ inline float4 load_values(const float* p) {
  return *reinterpret_cast<const float4*>(p);
}
__device__ inline float4 load_values(const std::uint16_t* p) {
  const uint2 v = *reinterpret_cast<const uint2*>(p);
  return make_float4(__uint_as_float(v.x << 16), __uint_as_float(v.x & 0xFFFF0000u),
                     __uint_as_float(v.y << 16), __uint_as_float(v.y & 0xFFFF0000u));
}

// Items of the routed experts have up to 8 rows, those of a shared expert in FP8 up to kTokens.
//
// Who has which item: item i of the block's run is in buffer i % 2. The consumers fill the first themselves, all at once; the
// helper warps fill the others while the tiles before are multiplied.
template <int kTokens>
struct Buffer {
  Fp8Image<kTokens> image;
  Item* s_item;
  std::int32_t* s_rows;  // [kTokens] t * (chosen + 1) + j
  float* s_weights;      // [kTokens]
};

// Of the 64 sums a token of tile t: 32 hidden channels from 32 gate and 32 up rows, or 64 output channels. All consumers.
template <bool kDown, int kTokens>
__device__ inline void finish_tile(const StreamedExperts& p, const Exchange& exchange, int t,
                                   const Buffer<kTokens>& buffer, int count, int tile) {
  constexpr int kOut = kDown ? kTileRows : kTileRows / 2;
  const int tokens = count <= 8 ? 8 : kTokens;
  exchange.wait_full(t);
  for (int i = first_output(t); i < kOut * count; i += kConsumers) {
    const int row = i % kOut, c = i / kOut;
    const float first = quant::bf16_round(exchange.total(t, row, c, tokens));
    const std::int64_t at = buffer.s_rows[c],
                       channel = static_cast<std::int64_t>(tile) * kOut + row;
    if (kDown) {
      p.parts[at * p.d + channel] = static_cast<std::uint16_t>(__float_as_uint(first) >> 16);
    } else {
      const float second = quant::bf16_round(exchange.total(t, 32 + row, c, tokens));
      const float gate = fminf(first, p.limit), up = fminf(fmaxf(second, -p.limit), p.limit);
      const float h = buffer.s_weights[c] * (gate / (1.0f + expf(-gate)) * up);
      p.hidden[at * p.inner + channel] =
          static_cast<std::uint16_t>(__float_as_uint(quant::bf16_round(h)) >> 16);
    }
  }
  exchange.done(t);
}

// `warps` warps, this one `warp`, fetch an item's rows and put them into the image. wait: the rows are the predecessor's, and
// everything but they is prepared before it has finished.
template <bool kDown, int kTokens>
__device__ inline void fill(const StreamedExperts& p, const Plan& plan, const Item& item,
                            const Buffer<kTokens>& to, int warp, int warps, bool wait) {
  const int lane = threadIdx.x % kWarp, chosen = p.plan_input.chosen;
  const bool mine = lane < item.count;
  const int slot = mine && item.expert >= 0 ? plan.slots[item.first + lane] : 0,
            token = item.expert < 0 ? item.first + lane : slot / chosen,
            row = item.expert < 0 ? token * (chosen + 1) + chosen : slot + token,
            from = kDown ? row : token;
  const int blocks = to.image.blocks, all = item.count * blocks;
  if (wait) wait_for_predecessor();
  constexpr int kAtOnce = 4;
  for (int first = warp; first < all; first += kAtOnce * warps) {
    float4 v[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int pair = min(first + i * warps, all - 1);
      const std::int64_t source = __shfl_sync(0xFFFFFFFFu, from, pair / blocks);
      const int column = pair % blocks * 128 + lane * 4;
      v[i] = kDown ? load_values(p.hidden + source * p.inner + column)
                   : load_values(p.x + source * p.d + column);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int pair = first + i * warps;
      if (pair < all) to.image.put(pair / blocks, pair % blocks, v[i]);
    }
  }
  if (warp == 0) {
    if (mine) {
      to.s_rows[lane] = row;
      to.s_weights[lane] = item.expert < 0 ? 1.0f : p.weights[slot];
    }
    if (lane == 0) *to.s_item = item;
  }
  fence_for_tensor_core();
}

// Barriers of the two buffers.
struct Handover {
  std::uint32_t full, free;

  __device__ void init() const {
    for (int i = 0; i < 2; ++i) {
      barrier_init(full + 8 * i, kHelperWarps);
      barrier_init(free + 8 * i, kConsumerWarps);
    }
  }
};

template <bool kDown, int kTokens>
__device__ inline void help(const StreamedExperts& p, const Plan& plan, const TileRun& run,
                            const Buffer<kTokens> (&buffers)[2], const Handover& handover) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp - kConsumerWarps - 1,
            first = run.begin / run.tiles_an_item, last = (run.end - 1) / run.tiles_an_item;
  for (int i = 1; i <= last - first; ++i) {
    const Item item = plan.items[first + i];
    if (i >= 2) barrier_wait(handover.free + 8 * (i & 1), (i / 2 - 1) & 1);
    fill<kDown>(p, plan, item, buffers[i & 1], warp, kHelperWarps, kDown && i == 1);
    warp_arrive(handover.full + 8 * (i & 1));
  }
}

template <bool kDown, int kTokens, bool kWhole>
__device__ inline void consume(const StreamedExperts& p, const Plan& plan, const TileRun& run,
                               Ring ring, Exchange exchange, const Buffer<kTokens> (&buffers)[2],
                               const Handover& handover) {
  if (run.begin >= run.end) return wait_for_predecessor();
  const int warp = __shfl_sync(0xFFFFFFFFu, static_cast<int>(threadIdx.x) / kWarp, 0);
  const Place me = Place::of(warp, threadIdx.x % kWarp);
  const std::int64_t rows = kDown ? p.d : p.inner, cols = kDown ? p.inner : p.d;
  const int stages = buffers[0].image.blocks / kSegments, first = run.begin / run.tiles_an_item,
            shared_stages_a_part = tile_layout(p.shared_format, rows, cols).stages_a_part(),
            routed_stages_a_part = tile_layout(p.routed_format, rows, cols).stages_a_part();
  fill<kDown>(p, plan, plan.items[first], buffers[0], warp, kConsumerWarps, kDown);
  consumers_sync();
  int tile = run.begin % run.tiles_an_item, at = run.begin;
#pragma unroll 1
  for (int i = 0; at < run.end; ++i, tile = 0) {
    const Buffer<kTokens>& buffer = buffers[i & 1];
    if (i > 0) barrier_wait(handover.full + 8 * (i & 1), (i - 1) / 2 & 1);
    const Item item = *buffer.s_item;
    const int end = min(run.tiles_an_item, tile + run.end - at);
    const quant::Format format = item.expert < 0 ? p.shared_format : p.routed_format;
    at += end - tile;
    if (kTokens > 8 && item.count > 8) {  // the shared expert in FP8
#pragma unroll 1
      for (; tile < end; ++tile) {
        float sum[kTokens / 2];
        multiply_fp8(ring, me, buffer.image, stages, shared_stages_a_part, sum);
        exchange.give(me, sum);
        finish_tile<kDown>(p, exchange, exchange.tile - 1, buffer, item.count, tile);
      }
    } else {
      const int begin = tile;
#pragma unroll 1
      for (; tile < end; ++tile) {
        float sum[4];
        if (format == quant::Format::kMxfp4)
          multiply_fp4<kWhole>(ring, me, buffer.image, stages, sum);
        else
          multiply_fp8(ring, me, buffer.image, stages,
                       item.expert < 0 ? shared_stages_a_part : routed_stages_a_part, sum);
        exchange.give(me, sum);
        if (tile > begin)
          finish_tile<kDown>(p, exchange, exchange.tile - 2, buffer, item.count, tile - 1);
      }
      finish_tile<kDown>(p, exchange, exchange.tile - 1, buffer, item.count, tile - 1);
    }
    warp_arrive(handover.free + 8 * (i & 1));
  }
}

#endif

}  // namespace nibble::ops::cuda::sm90
