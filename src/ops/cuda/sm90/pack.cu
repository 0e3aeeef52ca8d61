// Published weights into the tiles of the Hopper kernels.
#include "ops/cuda/cuda_error.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/matrix.cuh"
#include "ops/cuda/tiles.h"

namespace nibble::ops::cuda {
namespace {

constexpr int kThreads = 256;

// The word of eight codes as a lane permutes it: see tiles.h.
__device__ std::uint32_t spread_signs(std::uint32_t natural) {
  std::uint32_t word = natural & 0x77777777u;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    word |= (natural >> (4 * i + 3) & 1u) << (8 * i + 7);
    word |= (natural >> (4 * i + 19) & 1u) << (8 * i + 3);
  }
  return word;
}

// A warp a row, a lane a K block of 128.
__global__ void __launch_bounds__(kThreads) pack_mxfp4(Matrix m, std::byte* tiles, int* misfit) {
  const std::int64_t r = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / kWarp;
  if (r >= m.rows) return;
  const std::int64_t blocks = m.cols / 128;
  const auto* codes = static_cast<const std::uint32_t*>(m.data) + r * blocks * 16;
  const auto* scales = reinterpret_cast<const std::uint8_t*>(m.scales) + r * blocks * 4;
  const auto used = [&](std::int64_t group) {
    std::uint32_t any = 0;
    for (int w = 0; w < 4; ++w) any |= codes[group * 4 + w] & 0x77777777u;
    return any != 0;
  };
  int largest = -1, smallest = 256;  // exponents of groups that are not all zero
  for (std::int64_t group = threadIdx.x % kWarp; group < blocks * 4; group += kWarp) {
    if (scales[group] == quant::kE8M0Nan) *misfit = 1;
    if (!used(group)) continue;
    largest = max(largest, static_cast<int>(scales[group]));
    smallest = min(smallest, static_cast<int>(scales[group]));
  }
  largest = __reduce_max_sync(0xFFFFFFFFu, largest);
  smallest = __reduce_min_sync(0xFFFFFFFFu, smallest);
  // The largest group gets n = kFp4Span, and the row's power of two makes up for it.
  const int factor = largest - (kFp4Span - kFp4Bias), row = static_cast<int>(r % kBrickRows);
  if (largest >= 0 && (largest - smallest > kFp4Span || factor < 1)) *misfit = 1;
  for (std::int64_t block = threadIdx.x % kWarp; block < blocks; block += kWarp) {
    std::uint32_t row_word = static_cast<std::uint32_t>(largest < 0 ? 127 : max(factor, 1)) << 23;
    std::byte* brick = tiles + brick_offset(m.format, m.rows, m.cols, r, block);
    for (int group = 0; group < 4; ++group) {
      const std::int64_t at = block * 4 + group;
      const int n = used(at) ? max(kFp4Span - (largest - scales[at]), 0) : 0;
      row_word |= static_cast<std::uint32_t>(n) << (4 * group);
      for (int w = 0; w < 4; ++w)
        *reinterpret_cast<std::uint32_t*>(brick +
                                          brick_words(m.format, row, group * 32 + w * 8).offset) =
            spread_signs(codes[at * 4 + w]);
    }
    *reinterpret_cast<std::uint32_t*>(brick + 1024 + 4 * row) = row_word;
  }
}

// A thread eight columns of a row: of FP8 two words, of bf16 four.
__global__ void __launch_bounds__(kThreads) pack_words(Matrix m, std::byte* tiles) {
  const std::int64_t eights = m.cols / 8,
                     i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= m.rows * eights) return;
  const std::int64_t r = i / eights, c = i % eights * 8;
  const int width = block_cols(m.format), row = static_cast<int>(r % kBrickRows);
  std::byte* brick = tiles + brick_offset(m.format, m.rows, m.cols, r, c / width);
  const BrickWords at = brick_words(m.format, row, static_cast<int>(c % width));
  auto store = [&](int offset, std::uint32_t word) {
    *reinterpret_cast<std::uint32_t*>(brick + offset) = word;
  };
  if (m.format == quant::Format::kBF16) {
    const uint4 v = static_cast<const uint4*>(m.data)[i];
    store(at.offset, v.x);
    store(at.offset + at.stride, v.y);
    store(at.offset + 512, v.z);
    store(at.offset + 512 + at.stride, v.w);
    return;
  }
  const uint2 v = static_cast<const uint2*>(m.data)[i];
  store(at.offset, v.x);
  store(at.offset + at.stride, v.y);
  if (row == 0 && c % width == 0)
    *reinterpret_cast<float4*>(brick + kBrickRows * 128) =
        make_float4(scale_of(m, r, c), 0.0f, 0.0f, 0.0f);
}

unsigned blocks_of(std::int64_t work) {
  return static_cast<unsigned>((work + kThreads - 1) / kThreads);
}

}  // namespace

bool pack_tiles(const Matrix& published, std::byte* tiles, cudaStream_t stream) {
  if (published.format != quant::Format::kMxfp4) {
    pack_words<<<blocks_of(published.rows * published.cols / 8), kThreads, 0, stream>>>(published,
                                                                                        tiles);
    NIBBLE_CUDA(cudaGetLastError());
    return true;
  }
  int* misfit = nullptr;
  NIBBLE_CUDA(cudaMallocAsync(&misfit, sizeof(int), stream));
  NIBBLE_CUDA(cudaMemsetAsync(misfit, 0, sizeof(int), stream));
  pack_mxfp4<<<blocks_of(published.rows * kWarp), kThreads, 0, stream>>>(published, tiles, misfit);
  NIBBLE_CUDA(cudaGetLastError());
  int found = 0;
  NIBBLE_CUDA(cudaMemcpyAsync(&found, misfit, sizeof(int), cudaMemcpyDeviceToHost, stream));
  NIBBLE_CUDA(cudaFreeAsync(misfit, stream));
  NIBBLE_CUDA(cudaStreamSynchronize(stream));
  return found == 0;
}

}  // namespace nibble::ops::cuda
