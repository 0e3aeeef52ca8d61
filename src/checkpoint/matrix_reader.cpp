#include "checkpoint/matrix_reader.h"

#include <fmt/format.h>

#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "checkpoint/code_scan.h"
#include "checkpoint/quote.h"
#include "nibble/status.h"
#include "quant/bf16.h"
#include "quant/f16.h"
#include "quant/fp8_block.h"
#include "quant/mxfp4.h"

namespace nibble::checkpoint {
namespace {

using quant::Format;
using tensor::DType;
using tensor::Shape;

[[noreturn]] void refuse(const Checkpoint& checkpoint, const TensorSource& source,
                         const std::string& expected, const std::string& found) {
  throw CheckpointError(
      fmt::format("{}: expected {}, found {}", where(checkpoint, source), expected, found));
}

std::string dtype_and_shape(const TensorSource& source) {
  return fmt::format("{} {}", tensor::dtype_name(source.stored->dtype), source.shape.to_string());
}

// "element 517 (row 2, column 5)" of a row-major tensor.
std::string element_text(const Shape& shape, std::int64_t element) {
  if (shape.rank() != 2) return fmt::format("element {}", element);
  return fmt::format("element {} (row {}, column {})", element, element / shape[1],
                     element % shape[1]);
}

void refuse_element(const Checkpoint& checkpoint, const TensorSource& source,
                    std::optional<std::int64_t> element, std::string_view what) {
  if (!element) return;
  refuse(checkpoint, source, "finite values",
         fmt::format("{} at {}", what, element_text(source.shape, *element)));
}

void read_all(const Checkpoint& checkpoint, const TensorSource& source, std::span<std::byte> out) {
  NIBBLE_CHECK(static_cast<std::int64_t>(out.size()) == source.bytes, "{} bytes of {}", out.size(),
               source.bytes);
  checkpoint.read(*source.stored, source.offset, out);
}

}  // namespace

std::string where(const Checkpoint& checkpoint, const TensorSource& source) {
  std::string text = checkpoint.where(*source.stored);
  if (source.name != source.stored->name) text += fmt::format(" ({})", quote(source.name));
  return text;
}

Format matrix_format(const Checkpoint& checkpoint, const TensorSource& weight, std::int64_t rows,
                     std::int64_t cols) {
  const Shape full{rows, cols};
  const DType dtype = weight.stored->dtype;
  const bool packed = dtype == DType::kI8 || dtype == DType::kU8;
  if (packed && cols % quant::kMxfp4Group == 0 && weight.shape == Shape{rows, cols / 2}) {
    return Format::kMxfp4;
  }
  if (weight.shape == full) {
    if (dtype == DType::kF8E4M3) return Format::kFp8Block128;
    if (dtype == DType::kBF16) return Format::kBF16;
    if (dtype == DType::kF32 || dtype == DType::kF16) return Format::kF32;
  }
  std::string expected = fmt::format("F8_E4M3, BF16, F32 or F16 {}", full.to_string());
  if (cols % quant::kMxfp4Group == 0) {
    expected += fmt::format(" or MXFP4 as I8 {}", Shape{rows, cols / 2}.to_string());
  }
  refuse(checkpoint, weight, expected, dtype_and_shape(weight));
}

Shape scale_shape(Format format, std::int64_t rows, std::int64_t cols) {
  switch (format) {
    case Format::kFp8Block128:
      return {quant::fp8_blocks(rows), quant::fp8_blocks(cols)};
    case Format::kMxfp4:
      return {rows, cols / quant::kMxfp4Group};
    default:
      return {};
  }
}

void check_scale(const Checkpoint& checkpoint, const TensorSource& scale, Format format,
                 std::int64_t rows, std::int64_t cols) {
  const Shape shape = scale_shape(format, rows, cols);
  const DType dtype = scale.stored->dtype;
  const bool bytes = dtype == DType::kF8E8M0 || dtype == DType::kU8;
  const bool wide = dtype == DType::kF32 || dtype == DType::kBF16;
  const bool dtype_fits = format == Format::kMxfp4 ? bytes : dtype == DType::kF8E8M0 || wide;
  if (dtype_fits && scale.shape == shape) return;
  refuse(checkpoint, scale,
         fmt::format("{} {} as the scale of {}",
                     format == Format::kMxfp4 ? "F8_E8M0 (or U8)" : "F8_E8M0 (or F32, BF16)",
                     shape.to_string(), quant::format_name(format)),
         dtype_and_shape(scale));
}

void read_weight(const Checkpoint& checkpoint, const TensorSource& weight,
                 quant::HostMatrix& matrix) {
  switch (matrix.format) {
    case Format::kF32:
      read_floats(checkpoint, weight,
                  {matrix.data.as<float>(), static_cast<std::size_t>(matrix.rows * matrix.cols)});
      return;
    case Format::kBF16:
      read_all(checkpoint, weight, matrix.data.span());
      refuse_element(checkpoint, weight, find_nonfinite_bf16(matrix.data.span()),
                     "an infinity or NaN");
      return;
    case Format::kFp8Block128:
      read_all(checkpoint, weight, matrix.data.span());
      refuse_element(checkpoint, weight, find_e4m3_nan(matrix.data.span()), "an E4M3 NaN");
      return;
    default:  // every nibble is a number
      read_all(checkpoint, weight, matrix.data.span());
      return;
  }
}

void read_scale(const Checkpoint& checkpoint, const TensorSource& scale,
                quant::HostMatrix& matrix) {
  const std::uint8_t largest =
      matrix.format == Format::kMxfp4 ? quant::kMxfp4MaxFiniteScale : quant::kFp8MaxFiniteScale;
  auto* codes = matrix.scales.as<std::uint8_t>();
  if (tensor::dtype_bytes(scale.stored->dtype) == 1) {
    read_all(checkpoint, scale, matrix.scales.span());
  } else {
    std::vector<float> values(matrix.scales.size());
    read_floats(checkpoint, scale, values);
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (quant::e8m0_exact(values[i], codes[i])) continue;
      refuse(checkpoint, scale, "power-of-two scales (E8M0 holds no others)",
             fmt::format("{} at {}", values[i],
                         element_text(scale.shape, static_cast<std::int64_t>(i))));
    }
  }
  const auto bad = find_byte_above(matrix.scales.span(), largest);
  if (!bad) return;
  const std::uint8_t code = codes[*bad];
  refuse_element(
      checkpoint, scale, bad,
      code == quant::kE8M0Nan
          ? std::string("an E8M0 NaN (0xff)")
          : fmt::format("scale byte {} (at most {} keeps weights finite)", code, largest));
}

void read_floats(const Checkpoint& checkpoint, const TensorSource& source, std::span<float> out) {
  const auto bytes = std::as_writable_bytes(out);
  if (source.stored->dtype == DType::kF32) {
    read_all(checkpoint, source, bytes);
    refuse_element(checkpoint, source, find_nonfinite_f32(bytes), "an infinity or NaN");
    return;
  }
  // The half-width codes go into the upper half of the output and are widened from the front:
  // element i's four bytes never reach a code that has not been read yet.
  const auto codes = bytes.last(bytes.size() / 2);
  read_all(checkpoint, source, codes);
  const bool bf16 = source.stored->dtype == DType::kBF16;
  refuse_element(checkpoint, source, bf16 ? find_nonfinite_bf16(codes) : find_nonfinite_f16(codes),
                 "an infinity or NaN");
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::uint16_t code;
    std::memcpy(&code, codes.data() + 2 * i, sizeof(code));
    out[i] = bf16 ? quant::bf16_decode(code) : quant::f16_decode(code);
  }
}

}  // namespace nibble::checkpoint
