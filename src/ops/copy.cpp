#include "ops/copy.h"

namespace nibble::ops {

std::int64_t total_bytes(std::span<const ByteRange> ranges) {
  std::int64_t total = 0;
  for (const ByteRange& range : ranges) total += range.bytes;
  return total;
}

void check_gather(const GatherRowsArgs& a) {
  const auto m = static_cast<std::int64_t>(a.rows.size());
  const std::int64_t n = a.x.shape[0];
  NIBBLE_CHECK(a.y.shape[0] == m && a.y.shape.elements() * n == a.x.shape.elements() * m,
               "{} rows of {} to {}", m, a.x.shape.to_string(), a.y.shape.to_string());
  for (const std::int32_t row : a.rows) NIBBLE_CHECK(row >= 0 && row < n, "row {} of {}", row, n);
}

}  // namespace nibble::ops
