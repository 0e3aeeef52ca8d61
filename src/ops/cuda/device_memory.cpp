#include "ops/cuda/device_memory.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>

#include "nibble/status.h"
#include "ops/cuda/cuda_error.h"

namespace nibble::ops::cuda {
namespace {

constexpr std::int64_t kAlignment = 256;
constexpr std::int64_t kBlockBytes = 64 << 20;

void* take(std::int64_t bytes) {
  void* p = nullptr;
  const cudaError_t error = cudaMalloc(&p, static_cast<std::size_t>(bytes));
  if (error == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();  // not sticky: the next call may succeed
    std::size_t free = 0, total = 0;
    NIBBLE_CUDA(cudaMemGetInfo(&free, &total));
    throw Error(ExitCode::kFailed, fmt::format("out of GPU memory: {} bytes more were needed, {} "
                                               "of {} are free; a smaller --max-total-tokens "
                                               "or --max-num-seqs needs less",
                                               bytes, free, total));
  }
  NIBBLE_CUDA(error);
  return p;
}

}  // namespace

DeviceArena::~DeviceArena() {
  for (std::byte* block : blocks_) (void)cudaFree(block);
}

std::byte* DeviceArena::new_block(std::int64_t bytes) {
  blocks_.reserve(blocks_.size() + 1);
  auto* block = static_cast<std::byte*>(take(bytes));
  blocks_.push_back(block);
  bytes_ += bytes;
  return block;
}

std::byte* DeviceArena::allocate(std::int64_t bytes) {
  const std::int64_t size =
      std::max(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  if (size > kBlockBytes / 4) return new_block(size);
  if (size > free_bytes_) {
    free_ = new_block(kBlockBytes);
    free_bytes_ = kBlockBytes;
  }
  std::byte* out = free_;
  free_ += size;
  free_bytes_ -= size;
  return out;
}

Scratch::~Scratch() {
  (void)cudaFree(data_);
}

void* Scratch::reserve(std::int64_t bytes) {
  if (bytes <= bytes_ && data_) return data_;
  // By half at least: what grows with a sequence does not move at each of its steps.
  if (data_) bytes = std::max(bytes, bytes_ + bytes_ / 2);
  if (moves_) ++*moves_;
  // cudaFree waits for the kernels that still use it.
  NIBBLE_CUDA(cudaFree(data_));
  data_ = nullptr;
  bytes_ = 0;
  data_ = take(std::max<std::int64_t>(bytes, kAlignment));
  bytes_ = bytes;
  return data_;
}

}  // namespace nibble::ops::cuda
