// y = W x for Hopper: FP8 weights with FP8 or bf16 activations, bf16 weights with bf16 ones; one to sixteen tokens at a time at
// the speed at which the weights arrive, more by streaming the matrix again.
//
// A cluster takes tiles of 64 rows. Where K is cut, each of its blocks has a part of K, and reads the others' sums of its share
// of the rows in their shared memory: parts in order, in each the segments in order.
#include <algorithm>

#include "ops/cuda/kernels.h"
#include "ops/cuda/sm90/launch.h"
#include "ops/cuda/sm90/multiply.cuh"
#include "ops/cuda/sm90/quantize.h"

namespace nibble::ops::cuda {
namespace {

using namespace sm90;

enum class Product { kFp8, kFp8Bf16, kBf16 };

constexpr int kMostRing = 10;     // slots
constexpr int kExchangeRoom = 8;  // tokens; with 16, deferred tiles of 16 were seen to go wrong

struct LinearKernel {
  const float* x;
  Fp8Rows fp8;  // x; without codes the blocks round it themselves
  const std::byte* tiles;
  quant::Format format;
  std::int64_t rows, cols, x_stride;
  int n, rows_a_group;
  TileLayout layout;
  int ring;  // slots
  bool round_output;
  float* y;
};

struct LinearShared {
  int image = 0, partial, barriers, ring, bytes;

  __host__ __device__ static LinearShared of(Product product, int part_cols, int tokens,
                                             int slots) {
    LinearShared s;
    s.partial =
        product == Product::kFp8 ? part_cols / 128 * tokens * (128 + 4) : part_cols * tokens * 2;
    s.barriers = s.partial + exchange_bytes(kExchangeRoom);
    s.ring = (s.barriers + (2 * kMostRing + kExchangeBarriers) * 8 + 127) / 128 * 128;
    s.bytes = s.ring + slots * kSlotBytes;
    return s;
  }
};

#ifdef NIBBLE_SM90

// Exchange for a cluster: `full` and `free` are told by, and tell, all of its blocks.
struct ClusterExchange {
  Exchange local;
  int parts, rank;

  // A release to the cluster is dear: one warp's for the whole block.
  __device__ void tell(std::uint32_t barrier) const {
    if (parts == 1) return warp_arrive(barrier);
    consumers_sync();
    if (threadIdx.x < static_cast<unsigned>(parts))
      cluster_barrier_arrive(cluster_address(barrier, static_cast<int>(threadIdx.x)));
  }
  __device__ void wait(std::uint32_t barrier, std::uint32_t phase) const {
    if (parts == 1)
      barrier_wait(barrier, phase);
    else
      cluster_barrier_wait(barrier, phase);
  }
  __device__ void wait_free(int t) const {
    if (t >= 0) wait(local.free + 8 * (t & 1), t / 2 & 1);
  }
  template <int kSums>
  __device__ void give(const Place& me, const float (&sum)[kSums]) {
    wait_free(local.predecessor(2 * kSums));
    local.put(me, sum);
    tell(local.full + 8 * (local.tile & 1));
    local.given(2 * kSums);
  }
  __device__ void wait_full(int t) const { wait(local.full + 8 * (t & 1), t / 2 & 1); }
  __device__ void done(int t) const { tell(local.free + 8 * (t & 1)); }
  __device__ float total(int t, int row, int token, int tokens) const {
    if (parts == 1) return local.total(t, row, token, tokens);
    const std::uint32_t at = shared_address(local.buffer(t, tokens)) + (row * tokens + token) * 4;
    const std::uint32_t stride = kTileRows * static_cast<std::uint32_t>(tokens) * 4;
    float s[kMostParts][kSegments], sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kMostParts; ++i)
      if (i < parts) {
        const std::uint32_t there = cluster_address(at, i);
#pragma unroll
        for (int j = 0; j < kSegments; ++j) s[i][j] = cluster_load(there + j * stride);
      }
#pragma unroll
    for (int i = 0; i < kMostParts; ++i)
      if (i < parts) {
        const float more = ((s[i][0] + s[i][1]) + s[i][2]) + s[i][3];
        sum = i == 0 ? more : sum + more;
      }
    return sum;
  }
};

// This cluster's share of (tokens, tile) pairs, tokens outermost.
struct Share {
  int begin, end, tiles;

  __device__ static Share of(const LinearKernel& p, int tokens) {
    const int tiles = static_cast<int>(p.rows) / kTileRows, parts = p.layout.parts;
    const unsigned all = static_cast<unsigned>(tiles * ((p.n + tokens - 1) / tokens)),
                   cluster = blockIdx.x / parts, clusters = gridDim.x / parts;
    // As equal as whole tiles are: the first `more` clusters have one more.
    const unsigned each = all / clusters, more = all % clusters,
                   begin = cluster * each + min(cluster, more);
    return {static_cast<int>(begin), static_cast<int>(begin + each + (cluster < more)), tiles};
  }
};

__device__ void produce(const LinearKernel& p, const Share& share, int part, Ring ring) {
  const std::uint64_t policy = evict_first();
  const int count = p.layout.stages_a_part();
  const std::int64_t bytes = chunk_bytes(p.format);
  for (int i = share.begin; i < share.end; ++i) {
    const std::int64_t stage = 2ll * (i % share.tiles) * p.layout.stages + part * count;
    produce_tile(ring, p.format, p.tiles + stage * bytes,
                 p.tiles + (stage + p.layout.stages) * bytes, count, policy);
  }
}

// The tokens' columns of a part of K; some loads of a warp or thread under way at once.
template <int kTokens>
__device__ void fill(const Fp8Image<kTokens>& image, const float* x, std::int64_t stride,
                     int count) {
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, all = count * image.blocks;
  constexpr int kAtOnce = kTokens == 8 ? 4 : 8;
  for (int first = warp; first < all; first += kAtOnce * kConsumerWarps) {
    float4 v[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int pair = min(first + i * kConsumerWarps, all - 1);
      v[i] = *reinterpret_cast<const float4*>(x + pair / image.blocks * stride +
                                              pair % image.blocks * 128 + lane * 4);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int pair = first + i * kConsumerWarps;
      if (pair < all) image.put(pair / image.blocks, pair % image.blocks, v[i]);
    }
  }
}
__device__ void fill(const Bf16Image& image, const float* x, std::int64_t stride, int count) {
  const int eights = image.blocks * image.width / 8, all = count * eights;
  constexpr int kAtOnce = 4;
  for (int first = threadIdx.x; first < all; first += kAtOnce * kConsumers) {
    float4 v[kAtOnce][2];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int at = min(first + i * kConsumers, all - 1);
      const auto* from =
          reinterpret_cast<const float4*>(x + at / eights * stride + at % eights * 8);
      v[i][0] = from[0], v[i][1] = from[1];
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int at = first + i * kConsumers;
      if (at < all) image.put(at / eights, at % eights * 8, v[i][0], v[i][1]);
    }
  }
}

template <Product kProduct, int kTokens>
__device__ void consume(const LinearKernel& p, const Share& share, Ring ring,
                        ClusterExchange exchange, std::byte* s_image) {
  const int warp = __shfl_sync(0xFFFFFFFFu, static_cast<int>(threadIdx.x) / kWarp, 0);
  const Place me = Place::of(warp, threadIdx.x % kWarp);
  const int q = p.layout.stages_a_part(), blocks = q * kSegments, width = block_cols(p.format),
            own_rows = kTileRows / exchange.parts;
  const auto image = [&] {
    if constexpr (kProduct == Product::kFp8)
      return Fp8Image<kTokens>::at(s_image, blocks);
    else
      return Bf16Image{s_image, blocks, width};
  }();
  const auto finish = [&](int i) {
    const int t = i - share.begin, first_token = i / share.tiles * kTokens,
              count = min(kTokens, p.n - first_token), tokens = count <= 8 ? 8 : kTokens;
    const std::int64_t first_row = static_cast<std::int64_t>(i % share.tiles) * kTileRows;
    exchange.wait_full(t);
    for (int j = first_output(t); j < own_rows * count; j += kConsumers) {
      const int row = exchange.rank * own_rows + j % own_rows, c = j / own_rows;
      const float sum = exchange.total(t, row, c, tokens);
      p.y[(first_token + c) * p.rows + first_row + row] =
          p.round_output ? quant::bf16_round(sum) : sum;
    }
    exchange.done(t);
  };
  std::int64_t loaded = -1;
  bool owed = false;  // the tile before is not finished
#pragma unroll 1
  for (int i = share.begin; i < share.end; ++i) {
    const int first_token = i / share.tiles * kTokens, count = min(kTokens, p.n - first_token);
    const std::int64_t first_row = static_cast<std::int64_t>(i % share.tiles) * kTileRows,
                       column = static_cast<int>(first_row) / p.rows_a_group * p.cols +
                                static_cast<std::int64_t>(exchange.rank) * blocks * width,
                       wanted = first_token * p.x_stride + column;
    if (wanted != loaded) {
      loaded = wanted;
      if (owed) finish(i - 1);
      owed = false;
      consumers_sync();
      if constexpr (kProduct == Product::kFp8) {
        if (p.fp8.codes) {
          image.copy(p.fp8, first_token, count, exchange.rank * blocks);
          copies_wait();
        } else {
          fill(image, p.x + wanted, p.x_stride, count);
        }
      } else {
        fill(image, p.x + wanted, p.x_stride, count);
      }
      fence_for_tensor_core();
      consumers_sync();
    }
    const auto multiply = [&](auto& sum) {
      if constexpr (kProduct == Product::kFp8)
        multiply_fp8(ring, me, image, q, q, sum);
      else if constexpr (kProduct == Product::kFp8Bf16)
        multiply_fp8_bf16(ring, me, image, q, q, sum);
      else
        multiply_bf16(ring, me, image, q, q, sum);
      exchange.give(me, sum);
    };
    if (kTokens == 8 || count <= 8) {
      float sum[4];
      multiply(sum);
    } else {
      float sum[kTokens / 2];
      multiply(sum);
    }
    if (owed) finish(i - 1);
    owed = count <= exchange.local.room;
    if (!owed) finish(i);
  }
  if (owed) finish(share.end - 1);
  // The others have read what lies here.
  exchange.wait_free(exchange.local.tile - 1);
  exchange.wait_free(exchange.local.tile - 2);
}

#endif

template <Product kProduct, int kTokens>
__global__ void __launch_bounds__(kStreamThreads, 1) linear_kernel(const LinearKernel p) {
#ifdef NIBBLE_SM90
  extern __shared__ __align__(128) std::byte shared[];
  const int part_cols = p.layout.stages_a_part() * kSegments * block_cols(p.format);
  const LinearShared at = LinearShared::of(kProduct, part_cols, kTokens, p.ring);
  const std::uint32_t barriers = shared_address(shared + at.barriers);
  const Ring ring{shared_address(shared + at.ring), barriers, barriers + 8 * kMostRing, p.ring};
  const ClusterExchange exchange{
      {reinterpret_cast<float*>(shared + at.partial), barriers + 16 * kMostRing,
       barriers + 16 * kMostRing + 16, kExchangeRoom},
      p.layout.parts,
      p.layout.parts > 1 ? cluster_rank() : 0};
  if (threadIdx.x == 0) {
    for (int i = 0; i < p.ring; ++i) {
      barrier_init(ring.full + 8 * i, 1);
      barrier_init(ring.empty + 8 * i, kConsumerWarps);
    }
    exchange.local.init(p.layout.parts == 1 ? kConsumerWarps : p.layout.parts);
    barriers_visible();
  }
  __syncthreads();
  let_successor_start();
  if (p.layout.parts > 1) cluster_arrive();
  const Share share = Share::of(p, kTokens);
  // The weights do not depend on the kernel before this one.
  if (threadIdx.x / kWarp == kConsumerWarps) {
    if (threadIdx.x % kWarp == 0) produce(p, share, exchange.rank, ring);
    return;
  }
  if (p.layout.parts > 1) cluster_wait();
  wait_for_predecessor();
  consume<kProduct, kTokens>(p, share, ring, exchange, shared + at.image);
#endif
}

int part_cols(const Matrix& weight) {
  return tile_layout(weight.format, weight.rows, weight.cols).stages_a_part() * kSegments *
         block_cols(weight.format);
}

template <Product kProduct, int kTokens>
void launch(LinearKernel p, const Matrix& weight, cudaStream_t stream) {
  const int fixed = LinearShared::of(kProduct, part_cols(weight), kTokens, 0).bytes,
            parts = p.layout.parts;
  p.ring = std::min(kMostRing, (kMostShared - fixed) / kSlotBytes / 2 * 2);
  // As few clusters as need no more rounds than the most that fit.
  const std::int64_t tiles = p.rows / kTileRows * ((p.n + kTokens - 1) / kTokens),
                     rounds = (tiles + sm_count() / parts - 1) / (sm_count() / parts),
                     clusters = (tiles + rounds - 1) / rounds;
  launch_clusters(linear_kernel<kProduct, kTokens>, parts, static_cast<int>(clusters * parts),
                  kStreamThreads,
                  static_cast<std::size_t>(
                      LinearShared::of(kProduct, part_cols(weight), kTokens, p.ring).bytes),
                  stream, p);
}

template <Product kProduct>
void launch(const LinearKernel& p, const Matrix& weight, cudaStream_t stream) {
  if (p.n <= 8)
    launch<kProduct, 8>(p, weight, stream);
  else
    launch<kProduct, 16>(p, weight, stream);
}

}  // namespace

std::int64_t linear_workspace_bytes(const Matrix& weight, bool fp8_input, std::int64_t n) {
  return fp8_input && n > kMostSelfRounded ? fp8_rows_bytes(n, weight.cols) : 0;
}

bool streams_linear(const Matrix& weight, int groups) {
  return weight.layout == Layout::kTiles &&
         (weight.format == quant::Format::kFp8Block128 || weight.format == quant::Format::kBF16) &&
         weight.rows % (static_cast<std::int64_t>(groups) * kTileRows) == 0 &&
         LinearShared::of(Product::kBf16, part_cols(weight), 16, 4).bytes <= kMostShared;
}

void launch_streamed_linear(const StreamedLinear& a, std::int64_t n, cudaStream_t stream) {
  Fp8Rows rows;
  if (a.fp8_input && n > kMostSelfRounded)
    rows = launch_fp8_rows(a.x, n, a.weight.cols, a.workspace, stream);
  const LinearKernel p{a.x,
                       rows,
                       static_cast<const std::byte*>(a.weight.data),
                       a.weight.format,
                       a.weight.rows,
                       a.weight.cols,
                       a.groups * a.weight.cols,
                       static_cast<int>(n),
                       static_cast<int>(a.weight.rows / a.groups),
                       tile_layout(a.weight.format, a.weight.rows, a.weight.cols),
                       0,
                       a.round_output,
                       a.y};
  if (a.weight.format == quant::Format::kBF16)
    launch<Product::kBf16>(p, a.weight, stream);
  else if (a.fp8_input)
    launch<Product::kFp8>(p, a.weight, stream);
  else
    launch<Product::kFp8Bf16>(p, a.weight, stream);
}

}  // namespace nibble::ops::cuda
