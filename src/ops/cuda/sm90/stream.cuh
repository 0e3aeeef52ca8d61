// What the streaming kernels share: one producer warp fills a ring of chunks with bulk copies; sixteen consumer warps, four
// warpgroups, each multiply their K segment of a tile of 64 rows with the tokens in shared memory and leave partial sums; one
// warpgroup after the other, tile by tile, adds the four segments in order and finishes the tile.
//
// The order of a sum: K blocks of a segment ascending, segments left to right. It depends on nothing but the matrix's shape.
#pragma once

#include "ops/cuda/numerics.cuh"
#include "ops/cuda/sm90/ptx.cuh"
#include "ops/cuda/tiles.h"

namespace nibble::ops::cuda::sm90 {

inline constexpr int kConsumerWarps = 16;
inline constexpr int kStreamThreads = (kConsumerWarps + 1) * kWarp;
inline constexpr int kConsumers = kConsumerWarps * kWarp;
inline constexpr int kGroupThreads = 128;  // a warpgroup
// Holds two chunks of MXFP4, or one of FP8 or bf16.
inline constexpr int kSlotBytes = 2 * chunk_bytes(quant::Format::kMxfp4);
static_assert(kSlotBytes >= chunk_bytes(quant::Format::kFp8Block128) &&
              kSlotBytes >= chunk_bytes(quant::Format::kBF16) && kSlotBytes % 128 == 0);

constexpr int slots_a_stage(quant::Format format) {
  return format == quant::Format::kMxfp4 ? 1 : 2;
}

// Of Exchange.
constexpr int exchange_bytes(int room) {
  return 2 * kSegments * kTileRows * room * 4;
}
inline constexpr int kExchangeBarriers = 4;

// Rows rounded to FP8: codes [rows, cols], the chunks of 16 bytes of a group of 128 in the order of Fp8Image, and scales
// [rows, cols / 128].
struct Fp8Rows {
  const std::byte* codes = nullptr;
  const float* scales = nullptr;
  std::int64_t cols = 0;
};

#ifdef NIBBLE_SM90

struct Ring {
  std::uint32_t data, full, empty;  // shared addresses: slots, and a barrier of each kind a slot
  int slots;
  int slot = 0;
  std::uint32_t phase = 0;

  __device__ std::uint32_t address() const { return data + slot * kSlotBytes; }
  __device__ void wait_full() const { barrier_wait(full + 8 * slot, phase); }
  __device__ void release() const { warp_arrive(empty + 8 * slot); }
  __device__ void advance() {
    if (++slot == slots) {
      slot = 0;
      phase ^= 1;
    }
  }
  // Producer, one lane.
  __device__ std::uint32_t claim(std::uint32_t bytes) const {
    barrier_wait(empty + 8 * slot, phase ^ 1);
    barrier_expect(full + 8 * slot, bytes);
    return full + 8 * slot;
  }
};

// `count` stages of two row blocks of 32 rows. One lane.
__device__ inline void produce_tile(Ring& ring, quant::Format format, const std::byte* first,
                                    const std::byte* second, int count, std::uint64_t policy) {
  const auto bytes = static_cast<std::uint32_t>(chunk_bytes(format));
  for (int i = 0; i < count; ++i, first += bytes, second += bytes) {
    if (format == quant::Format::kMxfp4) {
      const std::uint32_t barrier = ring.claim(2 * bytes);
      bulk_copy(ring.address(), first, bytes, barrier, policy);
      bulk_copy(ring.address() + bytes, second, bytes, barrier, policy);
      ring.advance();
    } else {
      bulk_copy(ring.address(), first, bytes, ring.claim(bytes), policy);
      ring.advance();
      bulk_copy(ring.address(), second, bytes, ring.claim(bytes), policy);
      ring.advance();
    }
  }
}

// A consumer warp's place: K segment (its warpgroup), 16-row slice of the tile (its warp there), and lane = 4 g + t.
struct Place {
  int segment, slice, lane, g, t;

  __device__ static Place of(int warp, int lane) {
    return {warp / 4, warp % 4, lane, lane / 4, lane % 4};
  }
  __device__ std::uint32_t brick(quant::Format format) const {  // within a chunk
    return static_cast<std::uint32_t>((segment * 2 + slice % 2) * brick_bytes(format));
  }
};

// Which K blocks a segment's stages are, as indices into the image.
struct BlockWalk {
  int block, left, stages_a_part;

  __device__ static BlockWalk of(int segment, int stages_a_part) {
    return {segment * stages_a_part, stages_a_part, stages_a_part};
  }
  __device__ void next() {
    ++block;
    if (--left == 0) {
      block += (kSegments - 1) * stages_a_part;
      left = stages_a_part;
    }
  }
};

// Where partial sums change hands: two buffers [segment][64 rows][tokens] with room for 8 or 16 tokens, each with a barrier that
// says it is full and one that says it is free. A tile's sums are finished by all consumer warps once the next tile has been
// multiplied, so that nobody waits for the slowest. 16 tokens in buffers for 8 take both, and are finished at once.
struct Exchange {
  float* s_partial;
  std::uint32_t full, free;  // [2]
  int room;                  // tokens
  int tile = 0;              // given so far
  bool both = false;         // the last one took both buffers

  __device__ void init(int arrivals = kConsumerWarps) const {  // one thread
    for (int i = 0; i < 2; ++i) {
      barrier_init(full + 8 * i, arrivals);
      barrier_init(free + 8 * i, arrivals);
    }
  }
  // Of tile t, whose sums have `tokens` columns.
  __device__ float* buffer(int t, int tokens) const {
    return s_partial + (tokens <= room ? (t & 1) * kSegments * kTileRows * room : 0);
  }
  // sum: [8 tokens j][row g, token 2t; 2t + 1; row g + 8 the same]
  template <int kSums>
  __device__ void put(const Place& me, const float (&sum)[kSums]) const {
    constexpr int kTokens = 2 * kSums;
    float* to = buffer(tile, kTokens) + (me.segment * kTileRows + me.slice * 16 + me.g) * kTokens +
                2 * me.t;
#pragma unroll
    for (int j = 0; j < kSums / 4; ++j) {
      *reinterpret_cast<float2*>(to + 8 * j) = make_float2(sum[4 * j], sum[4 * j + 1]);
      *reinterpret_cast<float2*>(to + 8 * kTokens + 8 * j) =
          make_float2(sum[4 * j + 2], sum[4 * j + 3]);
    }
  }
  // The tile whose buffer must have been read before the next one's sums of `tokens` columns are put; none: < 0.
  __device__ int predecessor(int tokens) const {
    return tokens <= room && !both ? tile - 2 : tile - 1;
  }
  __device__ void given(int tokens) {
    ++tile;
    both = tokens > room;
  }
  template <int kSums>
  __device__ void give(const Place& me, const float (&sum)[kSums]) {
    const int before = predecessor(2 * kSums);
    if (before >= 0) barrier_wait(free + 8 * (before & 1), before / 2 & 1);
    put(me, sum);
    warp_arrive(full + 8 * (tile & 1));
    given(2 * kSums);
  }
  __device__ void wait_full(int t) const {
    barrier_wait(full + 8 * (t & 1), t / 2 & 1);
  }
  __device__ void done(int t) const {
    warp_arrive(free + 8 * (t & 1));
  }
  // The four segments of one value, left to right.
  __device__ float total(int t, int row, int token, int tokens) const {
    const float* p = buffer(t, tokens) + row * tokens + token;
    const int stride = kTileRows * tokens;
    return ((p[0] + p[stride]) + p[2 * stride]) + p[3 * stride];
  }
};
// Which output a thread finishes first: another warp begins with each tile.
__device__ inline int first_output(int t) {
  return static_cast<int>(threadIdx.x + t * 5 * kWarp) % kConsumers;
}

__device__ inline void consumers_sync() {
  asm volatile("bar.sync 1, %0;" ::"n"(kConsumers) : "memory");
}

// --- tokens in shared memory --------------------------------------------------------------------------------------------------

// Four columns of a row rounded to FP8, of a lane whose warp has the group of 128.
struct Fp8Columns {
  std::uint32_t codes;
  float scale;

  __device__ static Fp8Columns of(float4 x) {
    const float amax = warp_max(
        fmaxf(fmaxf(fmaxf(fabsf(x.x), fabsf(x.y)), fmaxf(fabsf(x.z), fabsf(x.w))), kFp8AmaxFloor));
    const std::uint8_t code = quant::fp8_scale(amax);
    const float inverse = quant::e8m0_reciprocal(code);
    return {e4m3_pair(x.x * inverse, x.y * inverse) | e4m3_pair(x.z * inverse, x.w * inverse) << 16,
            quant::e8m0_decode(code)};
  }
  // Where they belong: of the group's eight chunks of 16 bytes (step, half), and within the chunk.
  __device__ static int chunk() { return threadIdx.x % 8; }
  __device__ static int offset() { return threadIdx.x % kWarp / 8 * 4; }
};

// E4M3, for wgmma: [K block][step 4][half 2][token][16 B], lane t's columns of a step in bytes 4t .. 4t + 3 of its halves; and a
// scale a token and K block, [K block][token].
template <int kTokens>
struct Fp8Image {
  std::byte* s_codes;
  float* s_scales;
  int blocks;

  static constexpr int kBlockBytes = kTokens * 128;
  __host__ __device__ static constexpr int bytes(int blocks) {
    return blocks * kTokens * (128 + 4);
  }
  __device__ static Fp8Image at(std::byte* memory, int blocks) {
    return {memory, reinterpret_cast<float*>(memory + blocks * kBlockBytes), blocks};
  }
  __device__ std::uint32_t descriptor(int block) const {
    return wgmma_descriptor<kTokens>(shared_address(s_codes) + block * kBlockBytes);
  }
  // Of tokens 2t and 2t + 1; further pairs 32 bytes on.
  __device__ std::uint32_t scales(int block, int t) const {
    return shared_address(s_scales) + (block * kTokens + 2 * t) * 4;
  }
  // x: columns 4 * lane .. + 3 of the block; one warp.
  __device__ void put(int token, int block, float4 x) const {
    const Fp8Columns q = Fp8Columns::of(x);
    *reinterpret_cast<std::uint32_t*>(s_codes + block * kBlockBytes + q.chunk() * kTokens * 16 +
                                      token * 16 + q.offset()) = q.codes;
    if (threadIdx.x % kWarp == 0) s_scales[block * kTokens + token] = q.scale;
  }
  // The same from rows that sm90/quantize.cu wrote, by the consumer threads; complete after copies_wait().
  __device__ void copy(const Fp8Rows& rows, std::int64_t first_row, int count,
                       int first_block) const {
    for (int i = threadIdx.x; i < count * blocks * 8; i += kConsumers) {
      const int token = i % count, chunk = i / count;
      copy16(shared_address(s_codes) + (chunk * kTokens + token) * 16,
             rows.codes + (first_row + token) * rows.cols + first_block * 128 + chunk * 16);
    }
    for (int i = threadIdx.x; i < count * blocks; i += kConsumers) {
      const int token = i % count, block = i / count;
      s_scales[block * kTokens + token] =
          rows.scales[(first_row + token) * (rows.cols / 128) + first_block + block];
    }
  }
};

// bf16, for mma.sync: [8 tokens j][K block][piece][lane 4g + t][16 B]: columns [t, t + 1) * block_cols / 4 of token g, eight a
// piece.
struct Bf16Image {
  std::byte* s_values;
  int blocks, width;  // K blocks and their columns

  __host__ __device__ static constexpr int bytes(int blocks, int width, int tokens) {
    return blocks * width * tokens * 2;
  }
  // Columns c .. c + 7 of the image, c a multiple of 8.
  __device__ void put(int token, int c, float4 a, float4 b) const {
    const int block = c / width, in_block = c % width, t = in_block / (width / 4),
              piece = in_block % (width / 4) / 8;
    std::byte* to = s_values + (token / 8 * blocks + block) * width * 16 + piece * 512 +
                    (token % 8 * 4 + t) * 16;
    *reinterpret_cast<uint4*>(to) = make_uint4(bf16_pair(a.x, a.y), bf16_pair(a.z, a.w),
                                               bf16_pair(b.x, b.y), bf16_pair(b.z, b.w));
  }
};

#endif

}  // namespace nibble::ops::cuda::sm90
