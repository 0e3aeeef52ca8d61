#include "ops/cpu/panel.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "nibble/status.h"
#include "quant/bf16.h"
#include "quant/fp8_block.h"
#include "quant/mxfp4.h"

namespace nibble::ops::cpu {
namespace {

using quant::Format;

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
      for (std::int64_t c = 0; c < cols; ++c) {
        if (quant::e4m3_is_nan(static_cast<std::uint8_t>(codes[c]))) refuse_nan(from, "code", r, c);
        panel[c * stride + fp8_place(lane)] = codes[c];
      }
      return;
    case Format::kMxfp4: {
      const std::int64_t place = fp4_place(lane);
      for (std::int64_t c = 0; c < cols; ++c) {
        const std::byte code = (codes[c / 2] >> (c % 2 * 4)) & std::byte{0xF};
        panel[c * stride + place / 2] |= code << (place % 2 * 4);
      }
      return;
    }
  }
}

void pack_scales(const quant::HostMatrix& from, quant::HostMatrix& to) {
  const auto* scales = from.scales.as<std::uint8_t>();
  for (std::size_t i = 0; i < from.scales.size(); ++i)
    if (scales[i] == quant::kE8M0Nan)
      refuse_nan(from, "scale (its index is the column)", 0, static_cast<std::int64_t>(i));
  if (from.format == Format::kFp8Block128) {
    to.scales = quant::AlignedBytes(from.scales.size());
    std::copy_n(scales, from.scales.size(), to.scales.as<std::uint8_t>());
  } else if (from.format == Format::kMxfp4) {
    const std::int64_t groups = from.cols / quant::kMxfp4Group;
    const std::int64_t bytes = panel_count(from.rows) * groups * kPanelRows;
    to.scales = quant::AlignedBytes(static_cast<std::size_t>(bytes));
    auto* out = to.scales.as<std::uint8_t>();
    std::fill_n(out, bytes, quant::kE8M0One);
    for (std::int64_t r = 0; r < from.rows; ++r)
      for (std::int64_t g = 0; g < groups; ++g)
        out[(r / kPanelRows * groups + g) * kPanelRows + r % kPanelRows] = scales[r * groups + g];
  }
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
  if (packed.format == Format::kFp8Block128)
    panel.scales =
        packed.scales + p * kPanelRows / quant::kFp8Block * quant::fp8_blocks(packed.cols);
  else if (packed.format == Format::kMxfp4)
    panel.scales = packed.scales + p * packed.cols;  // 32 bytes per 32 columns
  return panel;
}

void read_packed_row(const Matrix& packed, std::int64_t r, float* out) {
  const Panel panel = panel_of(packed, r / kPanelRows);
  const std::int64_t lane = r % kPanelRows;
  if (packed.format == Format::kF32) {
    const auto* values = reinterpret_cast<const float*>(panel.data) + lane;
    for (std::int64_t c = 0; c < packed.cols; ++c) out[c] = values[c * kPanelRows];
    return;
  }
  NIBBLE_CHECK(packed.format == Format::kBF16, "rows of {}", quant::format_name(packed.format));
  const auto* words = reinterpret_cast<const std::uint16_t*>(panel.data) + bf16_place(lane);
  for (std::int64_t c = 0; c < packed.cols; ++c) out[c] = quant::bf16_decode(words[c * kPanelRows]);
}

}  // namespace nibble::ops::cpu
