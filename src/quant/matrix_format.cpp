#include "quant/matrix_format.h"

#include <algorithm>

#include "base/check.h"
#include "quant/bf16.h"
#include "quant/fp8_block.h"
#include "quant/mxfp4.h"

namespace nibble::quant {

const char* format_name(Format format) {
  switch (format) {
    case Format::kF32:
      return "F32";
    case Format::kBF16:
      return "BF16";
    case Format::kFp8Block128:
      return "FP8 128x128 (E8M0)";
    case Format::kMxfp4:
      return "MXFP4";
  }
  NIBBLE_CHECK(false, "format {}", static_cast<int>(format));
}

std::int64_t row_bytes(Format format, std::int64_t cols) {
  NIBBLE_CHECK(cols >= 0, "columns {}", cols);
  switch (format) {
    case Format::kF32:
      return 4 * cols;
    case Format::kBF16:
      return 2 * cols;
    case Format::kFp8Block128:
      return cols;
    case Format::kMxfp4:
      NIBBLE_CHECK(cols % kMxfp4Group == 0, "columns {}", cols);
      return cols / 2;
  }
  NIBBLE_CHECK(false, "format {}", static_cast<int>(format));
}

std::int64_t data_bytes(Format format, std::int64_t rows, std::int64_t cols) {
  NIBBLE_CHECK(rows >= 0, "rows {}", rows);
  return rows * row_bytes(format, cols);
}

std::int64_t scale_bytes(Format format, std::int64_t rows, std::int64_t cols) {
  NIBBLE_CHECK(rows >= 0 && cols >= 0, "[{}, {}]", rows, cols);
  switch (format) {
    case Format::kF32:
    case Format::kBF16:
      return 0;
    case Format::kFp8Block128:
      return fp8_blocks(rows) * fp8_blocks(cols);
    case Format::kMxfp4:
      NIBBLE_CHECK(cols % kMxfp4Group == 0, "columns {}", cols);
      return rows * (cols / kMxfp4Group);
  }
  NIBBLE_CHECK(false, "format {}", static_cast<int>(format));
}

HostMatrix make_host_matrix(Format format, std::int64_t rows, std::int64_t cols) {
  HostMatrix matrix;
  matrix.format = format;
  matrix.rows = rows;
  matrix.cols = cols;
  matrix.data = AlignedBytes(static_cast<std::size_t>(data_bytes(format, rows, cols)));
  matrix.scales = AlignedBytes(static_cast<std::size_t>(scale_bytes(format, rows, cols)));
  return matrix;
}

void decode_row(const HostMatrix& matrix, std::int64_t row, std::span<float> out) {
  NIBBLE_CHECK(
      row >= 0 && row < matrix.rows && static_cast<std::int64_t>(out.size()) == matrix.cols,
      "row {} of [{}, {}] into {} values", row, matrix.rows, matrix.cols, out.size());
  const std::int64_t code_bytes = row_bytes(matrix.format, matrix.cols);
  const auto* codes = matrix.data.as<std::uint8_t>() + row * code_bytes;
  const auto* scales = matrix.scales.as<std::uint8_t>();
  switch (matrix.format) {
    case Format::kF32:
      std::memcpy(out.data(), codes, static_cast<std::size_t>(code_bytes));
      return;
    case Format::kBF16:
      for (std::size_t c = 0; c < out.size(); ++c) {
        out[c] = bf16_decode(reinterpret_cast<const std::uint16_t*>(codes)[c]);
      }
      return;
    case Format::kFp8Block128: {
      const std::int64_t block_cols = fp8_blocks(matrix.cols);
      fp8_decode_row({codes, out.size()},
                     {scales + row / kFp8Block * block_cols, static_cast<std::size_t>(block_cols)},
                     out);
      return;
    }
    case Format::kMxfp4: {
      const std::int64_t groups = matrix.cols / kMxfp4Group;
      mxfp4_decode_row({codes, static_cast<std::size_t>(code_bytes)},
                       {scales + row * groups, static_cast<std::size_t>(groups)}, out);
      return;
    }
  }
}

HostMatrix encode_matrix(Format format, std::int64_t rows, std::int64_t cols,
                         std::span<const float> values) {
  NIBBLE_CHECK(static_cast<std::int64_t>(values.size()) == rows * cols, "[{}, {}] from {} values",
               rows, cols, values.size());
  HostMatrix matrix = make_host_matrix(format, rows, cols);
  auto* codes = matrix.data.as<std::uint8_t>();
  auto* scales = matrix.scales.as<std::uint8_t>();
  switch (format) {
    case Format::kF32:
      std::copy(values.begin(), values.end(), matrix.data.as<float>());
      break;
    case Format::kBF16:
      std::transform(values.begin(), values.end(), matrix.data.as<std::uint16_t>(), bf16_encode);
      break;
    case Format::kFp8Block128:
      fp8_encode_blocks(values, rows, cols, {codes, matrix.data.size()},
                        {scales, matrix.scales.size()});
      break;
    case Format::kMxfp4: {
      const auto bytes = static_cast<std::size_t>(row_bytes(format, cols));
      const auto groups = static_cast<std::size_t>(cols / kMxfp4Group);
      for (std::size_t r = 0; r < static_cast<std::size_t>(rows); ++r) {
        mxfp4_encode_row(
            values.subspan(r * static_cast<std::size_t>(cols), static_cast<std::size_t>(cols)),
            {codes + r * bytes, bytes}, {scales + r * groups, groups});
      }
      break;
    }
  }
  return matrix;
}

}  // namespace nibble::quant
