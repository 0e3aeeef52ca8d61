#include "ops/row_pool.h"

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

}  // namespace nibble::ops
