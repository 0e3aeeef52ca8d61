// Plain copies: rows of an activation, pieces of device memory to and from one buffer.
#include "ops/cuda/cuda_error.h"
#include "ops/cuda/kernels.h"

namespace nibble::ops::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void gather_kernel(const float* x, const std::int32_t* rows, std::int64_t width,
                              float* y) {
  const float* from = x + rows[blockIdx.x] * width;
  float* to = y + blockIdx.x * width;
  for (std::int64_t i = threadIdx.x; i < width; i += blockDim.x) to[i] = from[i];
}

template <typename Word>
__device__ void copy_words(const std::byte* from, std::byte* to, std::int64_t bytes) {
  const auto* in = reinterpret_cast<const Word*>(from);
  auto* out = reinterpret_cast<Word*>(to);
  for (std::int64_t i = threadIdx.x; i < bytes / static_cast<std::int64_t>(sizeof(Word));
       i += blockDim.x)
    out[i] = in[i];
}

// A block a range.
__global__ void copy_ranges_kernel(const StagedRange* ranges, std::byte* staging, bool to_staging) {
  const StagedRange range = ranges[blockIdx.x];
  std::byte* staged = staging + range.offset;
  const std::byte* from = to_staging ? range.data : staged;
  std::byte* to = to_staging ? staged : range.data;
  const auto bits = reinterpret_cast<std::uintptr_t>(from) | reinterpret_cast<std::uintptr_t>(to) |
                    static_cast<std::uintptr_t>(range.bytes);
  if (bits % sizeof(uint4) == 0)
    copy_words<uint4>(from, to, range.bytes);
  else if (bits % sizeof(unsigned) == 0)
    copy_words<unsigned>(from, to, range.bytes);
  else
    copy_words<unsigned char>(from, to, range.bytes);
}

}  // namespace

void launch_gather_rows(const float* x, const std::int32_t* rows, std::int64_t m,
                        std::int64_t width, float* y, cudaStream_t stream) {
  gather_kernel<<<static_cast<unsigned>(m), kThreads, 0, stream>>>(x, rows, width, y);
  NIBBLE_CUDA(cudaGetLastError());
}

void launch_copy_ranges(const StagedRange* ranges, std::int64_t count, std::byte* staging,
                        bool to_staging, cudaStream_t stream) {
  copy_ranges_kernel<<<static_cast<unsigned>(count), kThreads, 0, stream>>>(ranges, staging,
                                                                            to_staging);
  NIBBLE_CUDA(cudaGetLastError());
}

}  // namespace nibble::ops::cuda
