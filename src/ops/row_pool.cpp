#include "ops/row_pool.h"

#include <algorithm>

#include "base/check.h"

namespace nibble::ops {

std::int64_t row_bytes(RowFormat format, int width) {
  switch (format) {
    case RowFormat::kF32:
      return 4L * width;
    case RowFormat::kBf16:
      return 2L * width;
    case RowFormat::kFp8Nope: {
      const int nope = width - kRopeChannels;
      NIBBLE_CHECK(nope > 0, "row of {} channels has no room for {} rotary ones", width,
                   kRopeChannels);
      return nope + 2L * kRopeChannels + (nope + kFp8RowBlock - 1) / kFp8RowBlock + 1;
    }
    case RowFormat::kFp4Index:
      NIBBLE_CHECK(width % kFp4IndexBlock == 0, "index key of {} channels", width);
      return width / 2 + width / kFp4IndexBlock;
  }
  return 0;
}

void check_pages(const PagedPool& pool, const Batch& batch, int ratio) {
  NIBBLE_CHECK(ratio >= 1 && pool.rows_per_page >= 1, "ratio {}, {} rows a page", ratio,
               pool.rows_per_page);
  for (const Segment& seg : batch.segments) {
    const std::int64_t entries = (static_cast<std::int64_t>(seg.position) + seg.rows) / ratio;
    const std::int64_t needed = (entries + pool.rows_per_page - 1) / pool.rows_per_page;
    if (needed == 0) continue;
    NIBBLE_CHECK(seg.first_page >= 0 &&
                     seg.first_page + needed <= static_cast<std::int64_t>(batch.pages.size()),
                 "{} entries from page {} of a table of {} on", entries, seg.first_page,
                 batch.pages.size());
    const auto [low, high] = std::ranges::minmax(batch.pages.subspan(
        static_cast<std::size_t>(seg.first_page), static_cast<std::size_t>(needed)));
    NIBBLE_CHECK(low >= 0 && high < pool.pages, "pages {} to {} in a pool of {}", low, high,
                 pool.pages);
  }
}

}  // namespace nibble::ops
