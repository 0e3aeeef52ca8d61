// The inner products: a consumer warp's 16 rows and its K segment of one tile, times 8 or 16 tokens. Four forms:
//   MXFP4 x E4M3     wgmma; weights become E4M3 in registers by table (quantization.md 5.2)
//   FP8 x E4M3       wgmma; weights come as the operand
//   FP8 x bf16       mma.sync; weights become bf16
//   bf16 x bf16      mma.sync
// wgmma keeps about 14 bits of a sum, so each K block of 128 is promoted to fp32 (with the scales of both sides); the block that
// is being multiplied and the one that is being promoted are different ones. sum[]: see Exchange::give.
#pragma once

#include "ops/cuda/sm90/stream.cuh"

namespace nibble::ops::cuda::sm90 {

#ifdef NIBBLE_SM90

// 16 rows x 128 columns as wgmma's A operand, and the factors of rows g and g + 8.
struct Operand {
  std::uint32_t a[4][4];
  float factor[2];
};

// Eight codes of a word to E4M3, through a table of the eight magnitudes.
__device__ inline void decode_fp4(std::uint32_t word, std::uint32_t table_low,
                                  std::uint32_t table_high, std::uint32_t& low,
                                  std::uint32_t& high) {
  const std::uint32_t selector = word & 0x77777777u;
  low = permute(table_low, table_high, selector) | (word & 0x80808080u);
  high = permute(table_low, table_high, selector >> 16) | (word << 4 & 0x80808080u);
}

// Slot `slot` of the ring, in its `phase`.
__device__ inline void load_fp4(const Ring& ring, int slot, std::uint32_t phase, const Place& me,
                                Operand& out) {
  barrier_wait(ring.full + 8 * slot, phase);
  const std::uint32_t base = ring.data + me.slice / 2 * chunk_bytes(quant::Format::kMxfp4) +
                             me.brick(quant::Format::kMxfp4) + slot * kSlotBytes,
                      codes = base + me.lane * 16, row_word = base + 1024 + me.g * 4;
  const uint4 top = load_shared128(codes), bottom = load_shared128(codes + 512);
  const std::uint32_t row_words[2] = {load_shared32(row_word), load_shared32(row_word + 32)};
  warp_arrive(ring.empty + 8 * slot);
  const std::uint32_t words[2][4] = {{top.x, top.y, top.z, top.w},
                                     {bottom.x, bottom.y, bottom.z, bottom.w}};
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    // Magnitudes 0 .5 1 1.5 and 2 3 4 6, times 2^(n - kFp4Bias): n is added to the exponent of each that is not 0.
    const std::uint32_t n = row_words[r] >> (4 * me.t) & 0xFu;
    const std::uint32_t low = n * 0x08080800u + 0x14100800u, high = n * 0x08080808u + 0x24201C18u;
    out.factor[r] = __uint_as_float(row_words[r] & 0x7F800000u);
#pragma unroll
    for (int s = 0; s < 4; ++s) decode_fp4(words[r][s], low, high, out.a[s][r], out.a[s][r + 2]);
  }
}

// This warp's chunk of the two; both slots are held until here.
__device__ inline std::uint32_t wait_pair(Ring& ring, const Place& me) {
  Ring second = ring;
  second.advance();
  ring.wait_full();
  second.wait_full();
  return me.slice < 2 ? ring.address() : second.address();
}
__device__ inline void release_pair(Ring& ring) {
  __syncwarp();
  ring.release();
  ring.advance();
  ring.release();
  ring.advance();
}

__device__ inline void load_fp8(Ring& ring, const Place& me, Operand& out) {
  const std::uint32_t base = wait_pair(ring, me) + me.brick(quant::Format::kFp8Block128);
#pragma unroll
  for (int s = 0; s < 4; ++s) {
    const uint4 v = load_shared128(base + s * 512 + me.lane * 16);
    out.a[s][0] = v.x, out.a[s][1] = v.y, out.a[s][2] = v.z, out.a[s][3] = v.w;
  }
  out.factor[0] = out.factor[1] = __uint_as_float(load_shared32(base + kBrickRows * 128));
  release_pair(ring);
}

template <int kTokens, int kSums>
__device__ inline void start_block(std::uint32_t tokens, const Operand& weights,
                                   float (&raw)[kSums]) {
  wgmma_fence();
#pragma unroll
  for (int s = 0; s < 4; ++s)
    wgmma_e4m3(raw, weights.a[s], tokens + s * (kTokens * 32 >> 4), s > 0);
  wgmma_commit();
}

// The tokens' scales of the block; the weights' factors where they differ from block to block.
template <int kTokens, int kSums>
__device__ inline void promote(std::uint32_t scales, const float (&raw)[kSums],
                               float (&sum)[kSums]) {
#pragma unroll
  for (int j = 0; j < kSums / 4; ++j) {
    const float2 scale = load_shared_float2(scales + 32 * j);
    sum[4 * j] = fmaf(raw[4 * j], scale.x, sum[4 * j]);
    sum[4 * j + 1] = fmaf(raw[4 * j + 1], scale.y, sum[4 * j + 1]);
    sum[4 * j + 2] = fmaf(raw[4 * j + 2], scale.x, sum[4 * j + 2]);
    sum[4 * j + 3] = fmaf(raw[4 * j + 3], scale.y, sum[4 * j + 3]);
  }
}
template <int kTokens, int kSums>
__device__ inline void promote(std::uint32_t scales, float factor, const float (&raw)[kSums],
                               float (&sum)[kSums]) {
#pragma unroll
  for (int j = 0; j < kSums / 4; ++j) {
    float2 scale = load_shared_float2(scales + 32 * j);
    scale.x *= factor, scale.y *= factor;
    sum[4 * j] = fmaf(raw[4 * j], scale.x, sum[4 * j]);
    sum[4 * j + 1] = fmaf(raw[4 * j + 1], scale.y, sum[4 * j + 1]);
    sum[4 * j + 2] = fmaf(raw[4 * j + 2], scale.x, sum[4 * j + 2]);
    sum[4 * j + 3] = fmaf(raw[4 * j + 3], scale.y, sum[4 * j + 3]);
  }
}

// `kCount` stages, the tensor cores one block ahead of the promotion. Unrolled: ptxas keeps wgmmas apart when their sums live
// across a loop. kWhole: the ring has as many slots as a turn has stages, and begins at its first.
template <int kCount, bool kWhole, int kTokens, int kSums>
__device__ inline void multiply_fp4_some(Ring& ring, const Place& me, std::uint32_t tokens,
                                         std::uint32_t scales, float (&factor)[2],
                                         float (&sum)[kSums]) {
  float raw[2][kSums];
#pragma unroll
  for (int i = 0; i < kSums; ++i) raw[0][i] = raw[1][i] = 0.0f;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    Operand weights;
    if constexpr (kWhole) {
      load_fp4(ring, i, ring.phase, me, weights);
    } else {
      load_fp4(ring, ring.slot, ring.phase, me, weights);
      ring.advance();
    }
    start_block<kTokens>(tokens + i * (Fp8Image<kTokens>::kBlockBytes >> 4), weights, raw[i % 2]);
    factor[0] = weights.factor[0], factor[1] = weights.factor[1];
    if (i > 0) {
      wgmma_wait<1>();
      promote<kTokens>(scales + (i - 1) * kTokens * 4, raw[(i + 1) % 2], sum);
    }
  }
  if constexpr (kWhole) ring.phase ^= 1;
  wgmma_wait<0>();
  promote<kTokens>(scales + (kCount - 1) * kTokens * 4, raw[(kCount + 1) % 2], sum);
}

// sum = the segment's products over `stages` stages. A row's power of two is the same in all of its blocks.
template <bool kWhole, int kTokens, int kSums>
__device__ inline void multiply_fp4(Ring& ring, const Place& me, const Fp8Image<kTokens>& image,
                                    int stages, float (&sum)[kSums]) {
#pragma unroll
  for (int i = 0; i < kSums; ++i) sum[i] = 0.0f;
  float factor[2];
  std::uint32_t tokens = image.descriptor(me.segment * stages),
                scales = image.scales(me.segment * stages, me.t);
  const auto some = [&]<int kCount, bool kFullTurn>() {
    multiply_fp4_some<kCount, kFullTurn, kTokens>(ring, me, tokens, scales, factor, sum);
    tokens += kCount * (Fp8Image<kTokens>::kBlockBytes >> 4);
    scales += kCount * kTokens * 4;
  };
#pragma unroll 1
  for (int left = stages / 4; left > 0; --left) some.template operator()<4, kWhole>();
  if constexpr (!kWhole) {
    if (stages & 2) some.template operator()<2, false>();
    if (stages & 1) some.template operator()<1, false>();
  }
#pragma unroll
  for (int i = 0; i < kSums; ++i) sum[i] *= factor[i / 2 % 2];
}

// The same. Nothing to decode, so other warps fill the time that a block's product takes.
template <int kTokens, int kSums>
__device__ inline void multiply_fp8(Ring& ring, const Place& me, const Fp8Image<kTokens>& image,
                                    int stages, int stages_a_part, float (&sum)[kSums]) {
#pragma unroll
  for (int i = 0; i < kSums; ++i) sum[i] = 0.0f;
  BlockWalk walk = BlockWalk::of(me.segment, stages_a_part);
#pragma unroll 1
  for (int i = 0; i < stages; ++i, walk.next()) {
    float raw[kSums];
#pragma unroll
    for (int j = 0; j < kSums; ++j) raw[j] = 0.0f;
    Operand weights;
    load_fp8(ring, me, weights);
    start_block<kTokens>(image.descriptor(walk.block), weights, raw);
    wgmma_wait<0>();
    promote<kTokens>(image.scales(walk.block, me.t), weights.factor[0], raw, sum);
  }
}

// Four E4M3 codes to bf16, the first two in `low`.
__device__ inline void fp8_to_bf16(std::uint32_t codes, std::uint32_t& low, std::uint32_t& high) {
  // A code in the upper byte of a half, then sign, exponent and mantissa to their places: 2^-120 of the value.
  const std::uint32_t a = permute(codes, 0, 0x1404), b = permute(codes, 0, 0x3424);
  constexpr std::uint32_t kTwoTo120 = 0x7B807B80u;
  low = multiply_bf16x2((a & 0x80008000u) | (a >> 4 & 0x07F007F0u), kTwoTo120);
  high = multiply_bf16x2((b & 0x80008000u) | (b >> 4 & 0x07F007F0u), kTwoTo120);
}

template <int kSums>
__device__ inline void multiply_fp8_bf16(Ring& ring, const Place& me, const Bf16Image& image,
                                         int stages, int stages_a_part, float (&sum)[kSums]) {
#pragma unroll
  for (int i = 0; i < kSums; ++i) sum[i] = 0.0f;
  BlockWalk walk = BlockWalk::of(me.segment, stages_a_part);
  const std::uint32_t tokens = shared_address(image.s_values) + me.lane * 16;
  for (int i = 0; i < stages; ++i, walk.next()) {
    const std::uint32_t base = wait_pair(ring, me) + me.brick(quant::Format::kFp8Block128);
    uint4 codes[4];
#pragma unroll
    for (int s = 0; s < 4; ++s) codes[s] = load_shared128(base + s * 512 + me.lane * 16);
    const float factor = __uint_as_float(load_shared32(base + kBrickRows * 128));
    release_pair(ring);
    float raw[kSums];
#pragma unroll
    for (int j = 0; j < kSums; ++j) raw[j] = 0.0f;
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      std::uint32_t a[2][4];  // columns 0-3 and 4-7 of the step
      fp8_to_bf16(codes[s].x, a[0][0], a[0][2]);
      fp8_to_bf16(codes[s].y, a[0][1], a[0][3]);
      fp8_to_bf16(codes[s].z, a[1][0], a[1][2]);
      fp8_to_bf16(codes[s].w, a[1][1], a[1][3]);
#pragma unroll
      for (int j = 0; j < kSums / 4; ++j) {
        const uint4 x =
            load_shared128(tokens + (j * image.blocks + walk.block) * image.width * 16 + s * 512);
        mma_bf16(raw + 4 * j, a[0][0], a[0][1], a[0][2], a[0][3], x.x, x.y);
        mma_bf16(raw + 4 * j, a[1][0], a[1][1], a[1][2], a[1][3], x.z, x.w);
      }
    }
#pragma unroll
    for (int j = 0; j < kSums; ++j) sum[j] = fmaf(raw[j], factor, sum[j]);
  }
}

template <int kSums>
__device__ inline void multiply_bf16(Ring& ring, const Place& me, const Bf16Image& image,
                                     int stages, int stages_a_part, float (&sum)[kSums]) {
#pragma unroll
  for (int i = 0; i < kSums; ++i) sum[i] = 0.0f;
  BlockWalk walk = BlockWalk::of(me.segment, stages_a_part);
  const std::uint32_t tokens = shared_address(image.s_values) + me.lane * 16;
  for (int i = 0; i < stages; ++i, walk.next()) {
    const std::uint32_t base = wait_pair(ring, me) + me.brick(quant::Format::kBF16);
    uint4 a[4];
#pragma unroll
    for (int s = 0; s < 4; ++s) a[s] = load_shared128(base + s * 512 + me.lane * 16);
    release_pair(ring);
#pragma unroll
    for (int piece = 0; piece < 2; ++piece)
#pragma unroll
      for (int j = 0; j < kSums / 4; ++j) {
        const uint4 x = load_shared128(tokens + (j * image.blocks + walk.block) * image.width * 16 +
                                       piece * 512);
        const uint4 &first = a[2 * piece], &second = a[2 * piece + 1];
        mma_bf16(sum + 4 * j, first.x, first.y, first.z, first.w, x.x, x.y);
        mma_bf16(sum + 4 * j, second.x, second.y, second.z, second.w, x.z, x.w);
      }
  }
}

#endif

}  // namespace nibble::ops::cuda::sm90
