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
  const std::size_t rows = grown(s.rows, batch.ids.size()),
                    segments = grown(s.segments, batch.segments.size()),
                    pages = grown(s.pages, batch.pages.size());
  if (rows != s.rows || segments != s.segments || pages != s.pages) ++moves_;
  s.rows = rows;
  s.segments = segments;
  s.pages = pages;
  s.page_count = batch.pages.size();
  s.context = 0;
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
  NIBBLE_CHECK(row_segment.size() <= batch.ids.size() &&
                   std::ranges::all_of(batch.ids.subspan(row_segment.size()),
                                       [](TokenId id) { return id == kPaddingId; }),
               "segments hold {} of {} rows", row_segment.size(), batch.ids.size());
  row_segment.resize(batch.ids.size(), -1);
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

std::int64_t CudaBackend::context_of(const Batch& batch) const {
  if (step_.context > 0) return step_.context;
  std::int64_t most = 0;
  for (const Segment& seg : batch.segments)
    most = std::max(most, static_cast<std::int64_t>(seg.position) + seg.rows);
  return most;
}

void CudaBackend::run_pass(const PassKey& key, const Batch& batch, const PassOps& ops) {
  if (!use_graphs_ || batch.ids.empty() || !std::ranges::all_of(batch.segments, fits_ring))
    return Backend::run_pass(key, batch, ops);
  NIBBLE_CHECK(batch.rows() <= key.max_rows, "{} rows in a pass of at most {}", batch.rows(),
               key.max_rows);
  step_.context = 0;
  const GraphKey bucket = GraphKey::of(key, batch.rows(), context_of(batch));
  padded_ids_.assign(batch.ids.begin(), batch.ids.end());
  padded_ids_.resize(static_cast<std::size_t>(bucket.rows), kPaddingId);
  const Batch padded{padded_ids_, batch.segments, batch.pages};
  begin_step(padded);
  const auto forget_moved = [&] {
    if (graph_moves_ != moves_) graphs_.clear();
    graph_moves_ = moves_;
  };
  forget_moved();
  if (graphs_.launch(bucket)) return;
  // Once as it is: that sizes all memory, loads the kernels, and is this step's result. Then the same again into a graph.
  step_.context = bucket.context;
  ops(padded);
  forget_moved();
  graphs_.capture(bucket, [&] { ops(padded); });
  step_.context = 0;
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
