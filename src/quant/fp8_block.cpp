#include "quant/fp8_block.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace nibble::quant {

void fp8_decode_row(std::span<const std::uint8_t> codes, std::int64_t block,
                    tensor::DType scale_dtype, const std::byte* scales, std::span<float> out) {
  NIBBLE_CHECK(codes.size() == out.size() && block > 0, "codes {} out {} block {}", codes.size(),
               out.size(), block);
  const auto cols = static_cast<std::int64_t>(codes.size());
  for (std::int64_t begin = 0; begin < cols; begin += block) {
    const float scale = scale_value(scale_dtype, scales, begin / block);
    const std::int64_t end = std::min(cols, begin + block);
    for (auto c = static_cast<std::size_t>(begin); c < static_cast<std::size_t>(end); ++c)
      out[c] = e4m3_decode(codes[c]) * scale;
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
                       std::int64_t block, tensor::DType scale_dtype, std::span<std::uint8_t> codes,
                       std::span<std::byte> scales) {
  const std::int64_t block_cols = fp8_blocks(cols, block);
  const std::int64_t blocks = fp8_blocks(rows, block) * block_cols;
  NIBBLE_CHECK(
      static_cast<std::int64_t>(values.size()) == rows * cols && codes.size() == values.size() &&
          static_cast<std::int64_t>(scales.size()) == blocks * tensor::dtype_bytes(scale_dtype),
      "[{}, {}]: values {} codes {} scales {}", rows, cols, values.size(), codes.size(),
      scales.size());
  for (std::int64_t b = 0; b < blocks; ++b) {
    const std::int64_t row_begin = b / block_cols * block, col_begin = b % block_cols * block;
    const std::int64_t row_end = std::min(rows, row_begin + block);
    const std::int64_t col_end = std::min(cols, col_begin + block);
    float amax = 0.0f;
    for (std::int64_t r = row_begin; r < row_end; ++r) {
      for (std::int64_t c = col_begin; c < col_end; ++c) {
        amax = std::max(amax, std::fabs(values[static_cast<std::size_t>(r * cols + c)]));
      }
    }
    NIBBLE_CHECK(std::isfinite(amax), "block {} amax {}", b, amax);
    const float scale =
        store_scale(scale_dtype,
                    amax == 0.0f                            ? 1.0f
                    : scale_dtype == tensor::DType::kF8E8M0 ? e8m0_decode(fp8_scale(amax))
                                                            : amax / kE4M3Max,
                    scales.data(), b);
    for (std::int64_t r = row_begin; r < row_end; ++r) {
      for (std::int64_t c = col_begin; c < col_end; ++c) {
        const auto i = static_cast<std::size_t>(r * cols + c);
        codes[i] = e4m3_encode(values[i] / scale);
      }
    }
  }
}

}  // namespace nibble::quant
