#include "quant/matrix_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "quant/bf16.h"
#include "quant/fp8_block.h"
#include "quant/int4.h"
#include "quant/mxfp4.h"
#include "quant/nvfp4.h"

namespace nibble::quant {
namespace {

using tensor::DType;

constexpr FormatTraits kF32Traits{"F32", 32, 0, 0, DType::kF8E8M0, false};
constexpr FormatTraits kBF16Traits{"BF16", 16, 0, 0, DType::kF8E8M0, false};
constexpr FormatTraits kFp8Block128Traits{"FP8 128x128 (E8M0)", 8,   kFp8Block, kFp8Block,
                                          DType::kF8E8M0,       true};
constexpr FormatTraits kFp8Block32Traits{"FP8 32x32 (E8M0)", 8,   kFp8SmallBlock, kFp8SmallBlock,
                                         DType::kF8E8M0,     true};
constexpr FormatTraits kMxfp4Traits{"MXFP4", 4, 1, kMxfp4Group, DType::kF8E8M0, true};
constexpr FormatTraits kNvfp4Traits{"NVFP4", 4, 1, kNvfp4Group, DType::kF8E4M3, false};
constexpr FormatTraits kInt4G32Traits{"INT4 g32", 4, 1, 32, DType::kBF16, false};
constexpr FormatTraits kInt4G128Traits{"INT4 g128", 4, 1, 128, DType::kBF16, false};

std::span<const std::uint8_t> as_codes(const std::byte* bytes, std::int64_t count) {
  return {reinterpret_cast<const std::uint8_t*>(bytes), static_cast<std::size_t>(count)};
}

void decode_int4_row(const std::byte* codes, const MatrixView& m, const std::byte* scales,
                     std::span<float> out) {
  const std::int64_t group = traits(m.format).block_cols;
  for (std::int64_t c = 0; c < m.cols; ++c) {
    const auto code = static_cast<std::uint8_t>(codes[c / 2] >> (c % 2 * 4));
    out[static_cast<std::size_t>(c)] =
        int4_decode(code) * scale_value(m.scale_dtype, scales, c / group);
  }
}

void encode_int4_row(std::span<const float> values, std::int64_t group, DType scale_dtype,
                     std::byte* codes, std::byte* scales, std::int64_t first_scale) {
  const auto cols = static_cast<std::int64_t>(values.size());
  for (std::int64_t begin = 0; begin < cols; begin += group) {
    float amax = 0.0f;
    for (std::int64_t c = begin; c < begin + group; ++c)
      amax = std::max(amax, std::fabs(values[static_cast<std::size_t>(c)]));
    NIBBLE_CHECK(std::isfinite(amax), "group at column {} amax {}", begin, amax);
    const float scale =
        store_scale(scale_dtype, int4_scale(amax), scales, first_scale + begin / group);
    for (std::int64_t c = begin; c < begin + group; c += 2) {
      const auto i = static_cast<std::size_t>(c);
      codes[c / 2] = static_cast<std::byte>(int4_encode(values[i], scale) |
                                            (int4_encode(values[i + 1], scale) << 4));
    }
  }
}

}  // namespace

const FormatTraits& traits(Format format) {
  switch (format) {
    case Format::kF32:
      return kF32Traits;
    case Format::kBF16:
      return kBF16Traits;
    case Format::kFp8Block128:
      return kFp8Block128Traits;
    case Format::kFp8Block32:
      return kFp8Block32Traits;
    case Format::kMxfp4:
      return kMxfp4Traits;
    case Format::kNvfp4:
      return kNvfp4Traits;
    case Format::kInt4G32:
      return kInt4G32Traits;
    case Format::kInt4G128:
      return kInt4G128Traits;
  }
  NIBBLE_CHECK(false, "format {}", static_cast<int>(format));
}

const char* format_name(Format format) {
  return traits(format).name;
}

std::string format_name(Format format, DType scale_dtype) {
  const FormatTraits& t = traits(format);
  if (t.block_cols == 0 || scale_dtype == t.scale_dtype) return t.name;
  const std::string_view name = t.name;
  return fmt::format("{} ({})", name.substr(0, name.find(" (")), tensor::dtype_name(scale_dtype));
}

bool allows_scale_dtype(Format format, DType scale_dtype) {
  switch (format) {
    case Format::kF32:
    case Format::kBF16:
      return false;
    case Format::kFp8Block128:
    case Format::kFp8Block32:
      return scale_dtype == DType::kF8E8M0 || scale_dtype == DType::kF32 ||
             scale_dtype == DType::kBF16;
    case Format::kMxfp4:
      return scale_dtype == DType::kF8E8M0;
    case Format::kNvfp4:
      return scale_dtype == DType::kF8E4M3;
    case Format::kInt4G32:
    case Format::kInt4G128:
      return scale_dtype == DType::kBF16 || scale_dtype == DType::kF16 ||
             scale_dtype == DType::kF32;
  }
  return false;
}

std::int64_t row_bytes(Format format, std::int64_t cols) {
  const FormatTraits& t = traits(format);
  NIBBLE_CHECK(cols >= 0, "columns {}", cols);
  NIBBLE_CHECK(t.bits != 4 || cols % t.block_cols == 0, "columns {} of {}", cols, t.name);
  return cols * t.bits / 8;
}

std::int64_t data_bytes(Format format, std::int64_t rows, std::int64_t cols) {
  NIBBLE_CHECK(rows >= 0, "rows {}", rows);
  return rows * row_bytes(format, cols);
}

std::int64_t scale_count(Format format, std::int64_t rows, std::int64_t cols) {
  const FormatTraits& t = traits(format);
  NIBBLE_CHECK(rows >= 0 && cols >= 0, "[{}, {}]", rows, cols);
  if (t.block_cols == 0) return 0;
  NIBBLE_CHECK(t.bits != 4 || cols % t.block_cols == 0, "columns {} of {}", cols, t.name);
  return fp8_blocks(rows, t.block_rows) * fp8_blocks(cols, t.block_cols);
}

std::int64_t scale_bytes(Format format, std::int64_t rows, std::int64_t cols, DType scale_dtype) {
  const std::int64_t count = scale_count(format, rows, cols);
  if (traits(format).block_cols == 0) return 0;
  NIBBLE_CHECK(allows_scale_dtype(format, scale_dtype), "{} scales of {}",
               tensor::dtype_name(scale_dtype), format_name(format));
  return count * tensor::dtype_bytes(scale_dtype);
}

std::int64_t scale_bytes(Format format, std::int64_t rows, std::int64_t cols) {
  return scale_bytes(format, rows, cols, traits(format).scale_dtype);
}

HostMatrix make_host_matrix(Format format, std::int64_t rows, std::int64_t cols,
                            DType scale_dtype) {
  HostMatrix matrix;
  matrix.format = format;
  matrix.rows = rows;
  matrix.cols = cols;
  matrix.scale_dtype = scale_dtype;
  matrix.data = AlignedBytes(static_cast<std::size_t>(data_bytes(format, rows, cols)));
  matrix.scales =
      AlignedBytes(static_cast<std::size_t>(scale_bytes(format, rows, cols, scale_dtype)));
  return matrix;
}

HostMatrix make_host_matrix(Format format, std::int64_t rows, std::int64_t cols) {
  return make_host_matrix(format, rows, cols, traits(format).scale_dtype);
}

void decode_row(const HostMatrix& matrix, std::int64_t row, std::span<float> out) {
  decode_row(matrix.view(), row, out);
}

void decode_row(const MatrixView& m, std::int64_t row, std::span<float> out) {
  NIBBLE_CHECK(row >= 0 && row < m.rows && static_cast<std::int64_t>(out.size()) == m.cols,
               "row {} of [{}, {}] into {} values", row, m.rows, m.cols, out.size());
  const FormatTraits& t = traits(m.format);
  const std::int64_t code_bytes = row_bytes(m.format, m.cols);
  const std::byte* codes = m.data + row * code_bytes;
  const std::int64_t groups = t.block_cols == 0 ? 0 : fp8_blocks(m.cols, t.block_cols);
  const std::byte* scales = t.block_cols == 0 ? nullptr
                                              : m.scales + row / t.block_rows * groups *
                                                               tensor::dtype_bytes(m.scale_dtype);
  switch (m.format) {
    case Format::kF32:
      std::memcpy(out.data(), codes, static_cast<std::size_t>(code_bytes));
      return;
    case Format::kBF16:
      for (std::size_t c = 0; c < out.size(); ++c)
        out[c] = bf16_decode(reinterpret_cast<const std::uint16_t*>(codes)[c]);
      return;
    case Format::kFp8Block128:
    case Format::kFp8Block32:
      fp8_decode_row(as_codes(codes, m.cols), t.block_cols, m.scale_dtype, scales, out);
      return;
    case Format::kMxfp4:
      mxfp4_decode_row(as_codes(codes, code_bytes), as_codes(scales, groups), out);
      return;
    case Format::kNvfp4:
      nvfp4_decode_row(as_codes(codes, code_bytes), as_codes(scales, groups), m.global_scale, out);
      return;
    case Format::kInt4G32:
    case Format::kInt4G128:
      decode_int4_row(codes, m, scales, out);
      return;
  }
}

HostMatrix encode_matrix(Format format, std::int64_t rows, std::int64_t cols,
                         std::span<const float> values) {
  return encode_matrix(format, rows, cols, values, traits(format).scale_dtype);
}

HostMatrix encode_matrix(Format format, std::int64_t rows, std::int64_t cols,
                         std::span<const float> values, DType scale_dtype) {
  NIBBLE_CHECK(static_cast<std::int64_t>(values.size()) == rows * cols, "[{}, {}] from {} values",
               rows, cols, values.size());
  const FormatTraits& t = traits(format);
  if (format == Format::kNvfp4) {
    float amax = 0.0f;
    for (const float value : values) amax = std::max(amax, std::fabs(value));
    return encode_nvfp4(rows, cols, values, nvfp4_global_scale(amax));
  }
  HostMatrix matrix = make_host_matrix(format, rows, cols, scale_dtype);
  auto* codes = matrix.data.as<std::uint8_t>();
  const auto bytes = static_cast<std::size_t>(row_bytes(format, cols));
  const auto row_of = [&](std::int64_t r) {
    return values.subspan(static_cast<std::size_t>(r * cols), static_cast<std::size_t>(cols));
  };
  switch (format) {
    case Format::kF32:
      std::copy(values.begin(), values.end(), matrix.data.as<float>());
      break;
    case Format::kBF16:
      std::transform(values.begin(), values.end(), matrix.data.as<std::uint16_t>(), bf16_encode);
      break;
    case Format::kFp8Block128:
    case Format::kFp8Block32:
      fp8_encode_blocks(values, rows, cols, t.block_cols, scale_dtype, {codes, matrix.data.size()},
                        matrix.scales.span());
      break;
    case Format::kMxfp4: {
      const auto groups = static_cast<std::size_t>(cols / t.block_cols);
      for (std::int64_t r = 0; r < rows; ++r) {
        const auto at = static_cast<std::size_t>(r);
        mxfp4_encode_row(row_of(r), {codes + at * bytes, bytes},
                         {matrix.scales.as<std::uint8_t>() + at * groups, groups});
      }
      break;
    }
    case Format::kInt4G32:
    case Format::kInt4G128:
      for (std::int64_t r = 0; r < rows; ++r) {
        encode_int4_row(row_of(r), t.block_cols, scale_dtype,
                        matrix.data.data() + r * static_cast<std::int64_t>(bytes),
                        matrix.scales.data(), r * (cols / t.block_cols));
      }
      break;
    case Format::kNvfp4:
      break;  // above
  }
  return matrix;
}

HostMatrix encode_nvfp4(std::int64_t rows, std::int64_t cols, std::span<const float> values,
                        float global_scale) {
  NIBBLE_CHECK(static_cast<std::int64_t>(values.size()) == rows * cols, "[{}, {}] from {} values",
               rows, cols, values.size());
  HostMatrix matrix = make_host_matrix(Format::kNvfp4, rows, cols);
  matrix.global_scale = global_scale;
  const auto bytes = static_cast<std::size_t>(cols / 2);
  const auto groups = static_cast<std::size_t>(cols / kNvfp4Group);
  for (std::size_t r = 0; r < static_cast<std::size_t>(rows); ++r) {
    nvfp4_encode_row(
        values.subspan(r * static_cast<std::size_t>(cols), static_cast<std::size_t>(cols)),
        global_scale, {matrix.data.as<std::uint8_t>() + r * bytes, bytes},
        {matrix.scales.as<std::uint8_t>() + r * groups, groups});
  }
  return matrix;
}

}  // namespace nibble::quant
