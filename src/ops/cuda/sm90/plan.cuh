// Which rows go to which expert: a stable counting sort of the tokens' choices, so that every block and every launch that sorts
// the same choices finds the same order.
#pragma once

#include "ops/cuda/numerics.cuh"

namespace nibble::ops::cuda::sm90 {

// One expert's weights times up to a tile of rows. Slot t * chosen + j is token t's j-th expert.
struct Item {
  std::int32_t expert;  // -1: the shared one
  std::int32_t first;   // into Plan::slots; of the shared one: the first token
  std::int32_t count;
};

struct Plan {
  Item* items;          // shared ones first
  std::int32_t* slots;  // by expert, then ascending
  std::int32_t* count;  // [1] of items
};

struct PlanInput {
  const std::int32_t* experts;  // [tokens, chosen]; -1: none, of a padding row
  int tokens, chosen, total_experts;
  int tile, shared_tile;  // rows an item

  __host__ __device__ int slots() const { return tokens * chosen; }
  __host__ __device__ int shared_items() const { return (tokens + shared_tile - 1) / shared_tile; }
  __host__ __device__ int scratch_bytes() const {
    return (3 * total_experts + (slots() + 31) / 32 * total_experts) * 4;
  }
};

// The whole block. scratch: shared memory of scratch_bytes().
__device__ inline void make_plan(const PlanInput& p, const Plan& out, std::int32_t* scratch) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp;
  const int count = p.slots(), pieces = (count + kWarp - 1) / kWarp, experts = p.total_experts;
  std::int32_t* rows = scratch;               // [experts] of an expert
  std::int32_t* first_slot = rows + experts;  // [experts]
  std::int32_t* first_item = first_slot + experts;
  std::int32_t* before =
      first_item + experts;  // [pieces][experts]: rows of an expert in earlier pieces of 32 slots
  for (int i = threadIdx.x; i < pieces * experts; i += blockDim.x) before[i] = 0;
  __syncthreads();
  for (int piece = warp; piece < pieces; piece += warps) {
    const int slot = piece * kWarp + lane, expert = slot < count ? p.experts[slot] : -1;
    const unsigned same = __match_any_sync(0xFFFFFFFFu, expert);
    if (expert >= 0 && lane == __ffs(same) - 1) before[piece * experts + expert] = __popc(same);
  }
  __syncthreads();
  for (int e = threadIdx.x; e < experts; e += blockDim.x) {
    int sum = 0;
    for (int piece = 0; piece < pieces; ++piece) {
      const int here = before[piece * experts + e];
      before[piece * experts + e] = sum;
      sum += here;
    }
    rows[e] = sum;
  }
  __syncthreads();
  if (warp == 0) {
    int slots = 0, items = p.shared_items();
    for (int base = 0; base < experts; base += kWarp) {
      const int n = base + lane < experts ? rows[base + lane] : 0;
      int slot_sum = n, item_sum = (n + p.tile - 1) / p.tile;
      const int own_items = item_sum;
#pragma unroll
      for (int offset = 1; offset < kWarp; offset *= 2) {
        const int a = __shfl_up_sync(0xFFFFFFFFu, slot_sum, offset),
                  b = __shfl_up_sync(0xFFFFFFFFu, item_sum, offset);
        if (lane >= offset) slot_sum += a, item_sum += b;
      }
      if (base + lane < experts) {
        first_slot[base + lane] = slots + slot_sum - n;
        first_item[base + lane] = items + item_sum - own_items;
      }
      slots += __shfl_sync(0xFFFFFFFFu, slot_sum, kWarp - 1);
      items += __shfl_sync(0xFFFFFFFFu, item_sum, kWarp - 1);
    }
    if (lane == 0) *out.count = items;
  }
  __syncthreads();
  for (int piece = warp; piece < pieces; piece += warps) {
    const int slot = piece * kWarp + lane, expert = slot < count ? p.experts[slot] : -1;
    const unsigned same = __match_any_sync(0xFFFFFFFFu, expert);
    if (expert >= 0)
      out.slots[first_slot[expert] + before[piece * experts + expert] +
                __popc(same & ((1u << lane) - 1))] = slot;
  }
  for (int e = threadIdx.x; e < experts; e += blockDim.x)
    for (int done = 0, i = first_item[e]; done < rows[e]; done += p.tile, ++i)
      out.items[i] = {e, first_slot[e] + done, min(p.tile, rows[e] - done)};
  for (int i = threadIdx.x; i < p.shared_items(); i += blockDim.x)
    out.items[i] = {-1, i * p.shared_tile, min(p.shared_tile, p.tokens - i * p.shared_tile)};
  __syncthreads();
}

// The same for few slots, at most a thread each; experts in the order in which they first appear. scratch: 3 words a slot.
__device__ inline void make_small_plan(const PlanInput& p, const Plan& out, std::int32_t* scratch) {
  const int slots = p.slots(), i = threadIdx.x;
  std::int32_t *experts = scratch, *rows = scratch + slots, *items = rows + slots;
  if (i < slots) experts[i] = p.experts[i];
  __syncthreads();
  int expert = -1, first = slots, rank = 0, total = 0;
  if (i < slots) {
    expert = experts[i];
    for (int j = 0; j < slots; ++j)
      if (experts[j] == expert) {
        first = min(first, j);
        rank += j < i;
        ++total;
      }
    const bool counts = first == i && expert >= 0;
    rows[i] = counts ? total : 0;
    items[i] = counts ? (total + p.tile - 1) / p.tile : 0;
  }
  __syncthreads();
  if (expert >= 0) {
    int slot = 0, item = p.shared_items();
    for (int j = 0; j < first; ++j) slot += rows[j], item += items[j];
    out.slots[slot + rank] = i;
    if (first == i)
      for (int done = 0; done < total; done += p.tile, ++item)
        out.items[item] = {expert, slot + done, min(p.tile, total - done)};
  }
  if (i < p.shared_items())
    out.items[i] = {-1, i * p.shared_tile, min(p.shared_tile, p.tokens - i * p.shared_tile)};
  if (i == 0) {
    int count = p.shared_items();
    for (int j = 0; j < slots; ++j) count += items[j];
    *out.count = count;
  }
  __syncthreads();
}

// The same for at most 32 slots, by one warp. The caller synchronises the block.
__device__ inline void make_tiny_plan(const PlanInput& p, const Plan& out) {
  if (threadIdx.x >= kWarp) return;
  const int i = threadIdx.x, slots = p.slots();
  const int expert = i < slots ? p.experts[i] : -1;
  const bool used = expert >= 0;
  const unsigned same = __match_any_sync(0xFFFFFFFFu, expert), below = (1u << i) - 1;
  const bool first = used && i == __ffs(same) - 1;
  const int rows = first ? __popc(same) : 0, own_items = (rows + p.tile - 1) / p.tile;
  int slot = rows, item = own_items;  // sums over this lane and those before it
#pragma unroll
  for (int offset = 1; offset < kWarp; offset *= 2) {
    const int a = __shfl_up_sync(0xFFFFFFFFu, slot, offset),
              b = __shfl_up_sync(0xFFFFFFFFu, item, offset);
    if (i >= offset) slot += a, item += b;
  }
  slot -= rows, item += p.shared_items() - own_items;
  const int group_slot = __shfl_sync(0xFFFFFFFFu, slot, __ffs(same) - 1);
  if (used) out.slots[group_slot + __popc(same & below)] = i;
  for (int done = 0, at = item; done < rows; done += p.tile, ++at)
    out.items[at] = {expert, slot + done, min(p.tile, rows - done)};
  for (int j = i; j < p.shared_items(); j += kWarp)
    out.items[j] = {-1, j * p.shared_tile, min(p.shared_tile, p.tokens - j * p.shared_tile)};
  if (i == kWarp - 1) *out.count = item + own_items;
}

}  // namespace nibble::ops::cuda::sm90
