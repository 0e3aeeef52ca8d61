// The batch of a step on the device: copied once, to places that stay the same while batches do not outgrow them.
#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "ops/cuda/cuda_backend.h"
#include "ops/cuda/cuda_error.h"

namespace nibble::ops::cuda {
namespace {

std::size_t grown(std::size_t capacity, std::size_t wanted) {
  return std::max(capacity, std::bit_ceil(std::max<std::size_t>(wanted, 64)));
}

}  // namespace

// One block of memory: ids [rows], segment of each row [rows], segments, pages. The last part is the longest and copied only as
// far as it is used.
void CudaBackend::begin_step(const Batch& batch) {
  StepData& s = step_;
  s.rows = grown(s.rows, batch.ids.size());
  s.segments = grown(s.segments, batch.segments.size());
  s.pages = grown(s.pages, batch.pages.size());
  s.page_count = batch.pages.size();
  const std::size_t row_segment_at = s.rows * sizeof(TokenId),
                    segments_at = row_segment_at + s.rows * sizeof(std::int32_t),
                    pages_at = segments_at + s.segments * sizeof(Segment);
  s.host.resize(pages_at + s.pages * sizeof(std::int32_t));
  std::ranges::copy(std::as_bytes(batch.ids), s.host.begin());
  std::vector<std::int32_t>& row_segment = s.row_segment;
  row_segment.clear();
  for (std::size_t i = 0; i < batch.segments.size(); ++i) {
    NIBBLE_CHECK(batch.segments[i].first_row == static_cast<std::int32_t>(row_segment.size()),
                 "segment {} begins at row {} after {} rows", i, batch.segments[i].first_row,
                 row_segment.size());
    row_segment.insert(row_segment.end(), static_cast<std::size_t>(batch.segments[i].rows),
                       static_cast<std::int32_t>(i));
  }
  NIBBLE_CHECK(row_segment.size() == batch.ids.size(), "segments hold {} of {} rows",
               row_segment.size(), batch.ids.size());
  const auto put = [&](std::span<const std::byte> bytes, std::size_t at) {
    std::ranges::copy(bytes, s.host.begin() + static_cast<std::ptrdiff_t>(at));
  };
  put(std::as_bytes(std::span(row_segment)), row_segment_at);
  put(std::as_bytes(batch.segments), segments_at);
  put(std::as_bytes(batch.pages), pages_at);
  auto* device = s.device.get<std::byte>(static_cast<std::int64_t>(s.host.size()));
  // From pageable memory: returns when the values have been read. In stream order after the last step's kernels.
  NIBBLE_CUDA(cudaMemcpyAsync(device, s.host.data(), pages_at + batch.pages.size_bytes(),
                              cudaMemcpyHostToDevice, stream_));
  s.on_device = {reinterpret_cast<const std::int32_t*>(device + row_segment_at),
                 reinterpret_cast<const Segment*>(device + segments_at),
                 reinterpret_cast<const std::int32_t*>(device + pages_at)};
  s.segments_at = segments_at;
  s.segment_count = batch.segments.size();
  copies_.know({s.host.data(), batch.ids.size_bytes()}, device);
}

BatchRows CudaBackend::rows_of(const Batch& batch) {
  const StepData& s = step_;
  NIBBLE_CHECK(batch.segments.size() == s.segment_count && batch.pages.size() == s.page_count &&
                   std::memcmp(s.host.data() + s.segments_at, batch.segments.data(),
                               batch.segments.size_bytes()) == 0,
               "a batch of {} segments that begin_step() was not called with",
               batch.segments.size());
  return s.on_device;
}

}  // namespace nibble::ops::cuda
