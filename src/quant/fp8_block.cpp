#include "quant/fp8_block.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace nibble::quant {

void fp8_decode_row(std::span<const std::uint8_t> codes, std::span<const std::uint8_t> scales,
                    std::span<float> out) {
  NIBBLE_CHECK(
      codes.size() == out.size() && static_cast<std::int64_t>(scales.size()) ==
                                        fp8_blocks(static_cast<std::int64_t>(codes.size())),
      "codes {} scales {} out {}", codes.size(), scales.size(), out.size());
  for (std::size_t c = 0; c < codes.size(); ++c) {
    out[c] = e4m3_decode(codes[c]) * e8m0_decode(scales[c / kFp8Block]);
  }
}

std::uint8_t fp8_encode_group(std::span<const float> values, float amax_floor,
                              std::span<std::uint8_t> codes) {
  NIBBLE_CHECK(values.size() == codes.size(), "values {} codes {}", values.size(), codes.size());
  float amax = amax_floor;
  for (const float value : values) amax = std::max(amax, std::fabs(value));
  const std::uint8_t scale = fp8_scale(amax);
  NIBBLE_CHECK(scale != kE8M0Nan, "amax {}", amax);
  // Dividing by a power of two is exact, so multiplying by its reciprocal is the same number.
  const float inverse = e8m0_reciprocal(scale);
  for (std::size_t i = 0; i < values.size(); ++i) codes[i] = e4m3_encode(values[i] * inverse);
  return scale;
}

void fp8_encode_blocks(std::span<const float> values, std::int64_t rows, std::int64_t cols,
                       std::span<std::uint8_t> codes, std::span<std::uint8_t> scales) {
  const std::int64_t block_cols = fp8_blocks(cols);
  NIBBLE_CHECK(static_cast<std::int64_t>(values.size()) == rows * cols &&
                   codes.size() == values.size() &&
                   static_cast<std::int64_t>(scales.size()) == fp8_blocks(rows) * block_cols,
               "[{}, {}]: values {} codes {} scales {}", rows, cols, values.size(), codes.size(),
               scales.size());
  for (std::int64_t block = 0; block < static_cast<std::int64_t>(scales.size()); ++block) {
    const std::int64_t row_begin = block / block_cols * kFp8Block;
    const std::int64_t col_begin = block % block_cols * kFp8Block;
    const std::int64_t row_end = std::min(rows, row_begin + kFp8Block);
    const std::int64_t col_end = std::min(cols, col_begin + kFp8Block);
    float amax = 0.0f;
    for (std::int64_t r = row_begin; r < row_end; ++r) {
      for (std::int64_t c = col_begin; c < col_end; ++c) {
        amax = std::max(amax, std::fabs(values[static_cast<std::size_t>(r * cols + c)]));
      }
    }
    const std::uint8_t scale = amax == 0.0f ? kE8M0One : fp8_scale(amax);
    NIBBLE_CHECK(scale != kE8M0Nan, "block {} amax {}", block, amax);
    const float inverse = e8m0_reciprocal(scale);
    for (std::int64_t r = row_begin; r < row_end; ++r) {
      for (std::int64_t c = col_begin; c < col_end; ++c) {
        const auto i = static_cast<std::size_t>(r * cols + c);
        codes[i] = e4m3_encode(values[i] * inverse);
      }
    }
    scales[static_cast<std::size_t>(block)] = scale;
  }
}

}  // namespace nibble::quant
