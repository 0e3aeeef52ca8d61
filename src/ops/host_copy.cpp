#include "ops/host_copy.h"

#include <algorithm>

#include "base/check.h"

namespace nibble::ops::host {
namespace {

void check_size(std::span<const ByteRange> ranges, std::size_t host) {
  NIBBLE_CHECK(total_bytes(ranges) == static_cast<std::int64_t>(host), "ranges of {} bytes for {}",
               total_bytes(ranges), host);
}

}  // namespace

void gather_rows(const GatherRowsArgs& a) {
  check_gather(a);
  if (a.rows.empty()) return;
  const std::int64_t width = a.x.shape.elements() / a.x.shape[0];
  float* to = a.y.f32();
  for (const std::int32_t row : a.rows) to = std::copy_n(a.x.f32() + row * width, width, to);
}

void save_ranges(std::span<const ByteRange> ranges, std::span<std::byte> host) {
  check_size(ranges, host.size());
  auto to = host.begin();
  for (const ByteRange& range : ranges) to = std::copy_n(range.data, range.bytes, to);
}

void load_ranges(std::span<const ByteRange> ranges, std::span<const std::byte> host) {
  check_size(ranges, host.size());
  auto from = host.begin();
  for (const ByteRange& range : ranges) {
    std::copy_n(from, range.bytes, range.data);
    from += range.bytes;
  }
}

void window_commit(const WindowCommitArgs& a) {
  const std::int64_t bytes = row_bytes(a.window.format, a.window.width);
  for (const Segment& seg : a.batch.segments) {
    if (fits_ring(seg)) continue;
    for (std::int64_t i = std::max<std::int64_t>(0, seg.rows - a.window.rows_per_slot);
         i < seg.rows; ++i)
      std::copy_n(a.step.row(0, seg.first_row + i), bytes,
                  a.window.row(seg.slot, seg.position + i));
  }
}

}  // namespace nibble::ops::host
