#include "ops/cpu/panel.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "nibble/status.h"
#include "quant/bf16.h"
#include "quant/e2m1.h"
#include "quant/fp8_block.h"
#include "quant/int4.h"
#include "quant/scale.h"

namespace nibble::ops::cpu {
namespace {

using quant::Format;
using tensor::DType;

[[noreturn]] void refuse_nan(const quant::HostMatrix& m, const char* what, std::int64_t row,
                             std::int64_t column) {
  throw CheckpointError(fmt::format("matrix [{}, {}] {}: NaN {} at row {}, column {}", m.rows,
                                    m.cols, quant::format_name(m.format), what, row, column));
}

// Row r of `from` into its panel.
void pack_row(const quant::HostMatrix& from, std::int64_t r, std::byte* panel) {
  const std::int64_t cols = from.cols, stride = panel_column_bytes(from.format);
  const std::byte* codes = from.data.data() + r * quant::row_bytes(from.format, cols);
  const std::int64_t lane = r % kPanelRows;
  switch (from.format) {
    case Format::kF32:
      for (std::int64_t c = 0; c < cols; ++c)
        std::memcpy(panel + c * stride + 4 * lane, codes + 4 * c, 4);
      return;
    case Format::kBF16:
      for (std::int64_t c = 0; c < cols; ++c)
        std::memcpy(panel + c * stride + 2 * bf16_place(lane), codes + 2 * c, 2);
      return;
    case Format::kFp8Block128:
    case Format::kFp8Block32:
      for (std::int64_t c = 0; c < cols; ++c) {
        if (quant::e4m3_is_nan(static_cast<std::uint8_t>(codes[c]))) refuse_nan(from, "code", r, c);
        panel[c * stride + fp8_place(lane)] = codes[c];
      }
      return;
    case Format::kMxfp4:
    case Format::kNvfp4:
    case Format::kInt4G32:
    case Format::kInt4G128: {
      const std::int64_t place = fp4_place(lane);
      for (std::int64_t c = 0; c < cols; ++c) {
        const std::byte code = (codes[c / 2] >> (c % 2 * 4)) & std::byte{0xF};
        panel[c * stride + place / 2] |= code << (place % 2 * 4);
      }
      return;
    }
  }
}

// Scales in the type the kernels read.
DType packed_scale_dtype(const quant::HostMatrix& from) {
  switch (from.format) {
    case Format::kF32:
    case Format::kBF16:
    case Format::kMxfp4:
    case Format::kNvfp4:
      return from.scale_dtype;
    case Format::kFp8Block128:
    case Format::kFp8Block32:
      return DType::kF32;
    case Format::kInt4G32:
    case Format::kInt4G128:
      return from.scale_dtype == DType::kBF16 ? DType::kBF16 : DType::kF32;
  }
  return from.scale_dtype;
}

void pack_scales(const quant::HostMatrix& from, quant::HostMatrix& to) {
  const quant::FormatTraits& t = quant::traits(from.format);
  const std::int64_t count = quant::scale_count(from.format, from.rows, from.cols);
  for (std::int64_t i = 0; i < count; ++i) {
    const float scale = quant::scale_value(from.scale_dtype, from.scales.data(), i);
    if (!std::isfinite(scale) || (from.format == Format::kNvfp4 && std::signbit(scale)))
      refuse_nan(from, "scale (its index is the column)", 0, i);
  }
  to.scale_dtype = packed_scale_dtype(from);
  to.global_scale = from.global_scale;
  if (count == 0) return;
  if (t.block_rows > 1) {  // in the published order
    to.scales = quant::AlignedBytes(static_cast<std::size_t>(count) * sizeof(float));
    for (std::int64_t i = 0; i < count; ++i)
      to.scales.as<float>()[i] = quant::scale_value(from.scale_dtype, from.scales.data(), i);
    return;
  }
  // Rows past the end: the smallest scale, 0 where there is one (INT4, whose code 0 means -8).
  const std::int64_t groups = from.cols / t.block_cols, bytes = tensor::dtype_bytes(to.scale_dtype);
  to.scales = quant::AlignedBytes(
      static_cast<std::size_t>(panel_count(from.rows) * groups * kPanelRows * bytes));
  std::ranges::fill(to.scales.span(), std::byte{0});
  for (std::int64_t r = 0; r < from.rows; ++r)
    for (std::int64_t g = 0; g < groups; ++g) {
      const std::int64_t at = (r / kPanelRows * groups + g) * kPanelRows + r % kPanelRows;
      std::byte* out = to.scales.data() + at * bytes;
      const std::int64_t i = r * groups + g;
      if (to.scale_dtype == from.scale_dtype) {
        std::memcpy(out, from.scales.data() + i * bytes, static_cast<std::size_t>(bytes));
      } else {
        const float scale = quant::scale_value(from.scale_dtype, from.scales.data(), i);
        std::memcpy(out, &scale, sizeof(scale));
      }
    }
}

// The value of a row's code in one column of its panel, without scale.
float panel_code(Format format, const std::byte* column, std::int64_t lane) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(column);
  const auto nibble = [&] {
    const std::int64_t place = fp4_place(lane);
    return static_cast<std::uint8_t>(bytes[place / 2] >> (place % 2 * 4));
  };
  switch (format) {
    case Format::kF32: {
      float value;
      std::memcpy(&value, column + 4 * lane, sizeof(value));
      return value;
    }
    case Format::kBF16: {
      std::uint16_t word;
      std::memcpy(&word, column + 2 * bf16_place(lane), sizeof(word));
      return quant::bf16_decode(word);
    }
    case Format::kFp8Block128:
    case Format::kFp8Block32:
      return quant::e4m3_decode(bytes[fp8_place(lane)]);
    case Format::kMxfp4:
    case Format::kNvfp4:
      return quant::e2m1_decode(nibble());
    case Format::kInt4G32:
    case Format::kInt4G128:
      return quant::int4_decode(nibble());
  }
  return 0.0f;
}

}  // namespace

quant::HostMatrix pack_panels(const quant::HostMatrix& published) {
  quant::HostMatrix packed;
  packed.format = published.format;
  packed.rows = published.rows;
  packed.cols = published.cols;
  const std::int64_t panel_bytes = panel_column_bytes(published.format) * published.cols;
  packed.data =
      quant::AlignedBytes(static_cast<std::size_t>(panel_count(published.rows) * panel_bytes));
  std::fill_n(packed.data.data(), packed.data.size(), std::byte{0});
  for (std::int64_t r = 0; r < published.rows; ++r)
    pack_row(published, r, packed.data.data() + r / kPanelRows * panel_bytes);
  pack_scales(published, packed);
  return packed;
}

Panel panel_of(const Matrix& packed, std::int64_t p) {
  Panel panel;
  panel.format = packed.format;
  panel.cols = packed.cols;
  panel.data = static_cast<const std::byte*>(packed.data) +
               p * panel_column_bytes(packed.format) * packed.cols;
  panel.scale_dtype = packed.scale_dtype;
  panel.global_scale = packed.global_scale;
  const quant::FormatTraits& t = quant::traits(packed.format);
  if (t.block_cols > 0) {
    const std::int64_t groups = quant::fp8_blocks(packed.cols, t.block_cols);
    const std::int64_t first =
        t.block_rows > 1 ? p * kPanelRows / t.block_rows * groups : p * groups * kPanelRows;
    panel.scales = packed.scales + first * tensor::dtype_bytes(packed.scale_dtype);
  }
  return panel;
}

void read_packed_row(const Matrix& packed, std::int64_t r, float* out) {
  const Panel panel = panel_of(packed, r / kPanelRows);
  const std::int64_t lane = r % kPanelRows, stride = panel_column_bytes(packed.format);
  const quant::FormatTraits& t = quant::traits(packed.format);
  for (std::int64_t c = 0; c < packed.cols; ++c)
    out[c] = panel_code(packed.format, panel.data + c * stride, lane);
  if (panel.scales == nullptr) return;
  for (std::int64_t c = 0; c < packed.cols; ++c) {
    const std::int64_t group = c / t.block_cols;
    const std::int64_t at = t.block_rows > 1 ? group : group * kPanelRows + lane;
    out[c] = out[c] * quant::scale_value(packed.scale_dtype, panel.scales, at);
    if (packed.format == Format::kNvfp4) out[c] = out[c] * packed.global_scale;
  }
}

}  // namespace nibble::ops::cpu
