// Plain copies: contracts checked, then the launch.
#include "base/check.h"
#include "ops/cuda/cuda_backend.h"
#include "ops/cuda/cuda_error.h"
#include "ops/cuda/kernels.h"

namespace nibble::ops::cuda {

void CudaBackend::gather_rows(const GatherRowsArgs& a) {
  check_gather(a);
  const auto m = static_cast<std::int64_t>(a.rows.size());
  if (m == 0) return;
  launch_gather_rows(a.x.f32(), copies_.get(a.rows), m, a.x.shape.elements() / a.x.shape[0],
                     a.y.f32(), stream_);
}

const StagedRange* CudaBackend::staged(std::span<const ByteRange> ranges, std::size_t host) {
  staged_.clear();
  std::int64_t offset = 0;
  for (const ByteRange& range : ranges) {
    staged_.push_back({range.data, offset, range.bytes});
    offset += range.bytes;
  }
  NIBBLE_CHECK(offset == static_cast<std::int64_t>(host), "ranges of {} bytes for {}", offset,
               host);
  auto* device = staged_ranges_.get<StagedRange>(static_cast<std::int64_t>(ranges.size()));
  NIBBLE_CUDA(cudaMemcpyAsync(device, staged_.data(), staged_.size() * sizeof(StagedRange),
                              cudaMemcpyHostToDevice, stream_));
  return device;
}

void CudaBackend::save_ranges(std::span<const ByteRange> ranges, std::span<std::byte> host) {
  const StagedRange* table = staged(ranges, host.size());
  if (host.empty()) return;
  auto* staging = staging_.get<std::byte>(static_cast<std::int64_t>(host.size()));
  launch_copy_ranges(table, static_cast<std::int64_t>(ranges.size()), staging, true, stream_);
  NIBBLE_CUDA(cudaMemcpyAsync(host.data(), staging, host.size(), cudaMemcpyDeviceToHost, stream_));
  NIBBLE_CUDA(cudaStreamSynchronize(stream_));
}

void CudaBackend::load_ranges(std::span<const ByteRange> ranges, std::span<const std::byte> host) {
  const StagedRange* table = staged(ranges, host.size());
  if (host.empty()) return;
  auto* staging = staging_.get<std::byte>(static_cast<std::int64_t>(host.size()));
  // From pageable memory: returns when the bytes have been read.
  NIBBLE_CUDA(cudaMemcpyAsync(staging, host.data(), host.size(), cudaMemcpyHostToDevice, stream_));
  launch_copy_ranges(table, static_cast<std::int64_t>(ranges.size()), staging, false, stream_);
}

}  // namespace nibble::ops::cuda
