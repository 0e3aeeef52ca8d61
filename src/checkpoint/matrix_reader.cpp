#include "checkpoint/matrix_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "checkpoint/code_scan.h"
#include "nibble/status.h"
#include "quant/bf16.h"
#include "quant/f16.h"
#include "quant/fp8_block.h"
#include "quant/mxfp4.h"
#include "quant/nvfp4.h"
#include "quant/scale.h"

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

void read_codes(const Checkpoint& checkpoint, const TensorSource& weight,
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
    case Format::kFp8Block32:
      read_all(checkpoint, weight, matrix.data.span());
      refuse_element(checkpoint, weight, find_e4m3_nan(matrix.data.span()), "an E4M3 NaN");
      return;
    case Format::kMxfp4:
    case Format::kNvfp4:
    case Format::kInt4G32:
    case Format::kInt4G128:  // every nibble is a number; int32 words are little endian, as we are
      read_all(checkpoint, weight, matrix.data.span());
      return;
  }
}

// The largest finite scale with which no weight leaves fp32's range.
float largest_scale(Format format) {
  constexpr float kMax = std::numeric_limits<float>::max();
  switch (format) {
    case Format::kMxfp4:
      return quant::e8m0_decode(quant::kMxfp4MaxFiniteScale);
    case Format::kInt4G32:
    case Format::kInt4G128:
      return kMax / 8.0f;
    default:
      return kMax / quant::kE4M3Max;
  }
}

void refuse_scale_byte(const Checkpoint& checkpoint, const TensorSource& scale,
                       const quant::HostMatrix& matrix) {
  const auto bytes = matrix.scales.span();
  const auto code_at = [&](std::int64_t i) {
    return static_cast<std::uint8_t>(bytes[static_cast<std::size_t>(i)]);
  };
  if (matrix.scale_dtype == DType::kF8E4M3) {
    const auto bad = find_byte_above(bytes, 0x7E);
    if (!bad) return;
    const bool nan = quant::e4m3_is_nan(code_at(*bad));
    refuse(checkpoint, scale, "scales from 0 to 448",
           fmt::format("{} (0x{:02x}) at {}",
                       nan ? "an E4M3 NaN"
                           : fmt::format("a negative one, {}", quant::e4m3_decode(code_at(*bad))),
                       code_at(*bad), element_text(scale.shape, *bad)));
  }
  const std::uint8_t largest =
      matrix.format == Format::kMxfp4 ? quant::kMxfp4MaxFiniteScale : quant::kFp8MaxFiniteScale;
  const auto bad = find_byte_above(bytes, largest);
  if (!bad) return;
  refuse_element(
      checkpoint, scale, bad,
      code_at(*bad) == quant::kE8M0Nan
          ? std::string("an E8M0 NaN (0xff)")
          : fmt::format("scale byte {} (at most {} keeps weights finite)", code_at(*bad), largest));
}

void read_scales(const Checkpoint& checkpoint, const TensorSource& scale,
                 quant::HostMatrix& matrix) {
  read_all(checkpoint, scale, matrix.scales.span());
  if (tensor::dtype_bytes(matrix.scale_dtype) == 1)
    return refuse_scale_byte(checkpoint, scale, matrix);
  // AutoRound's INT4 has negative scales; an FP8 scale is an amax.
  const bool signed_scales =
      matrix.format == Format::kInt4G32 || matrix.format == Format::kInt4G128;
  const float largest = largest_scale(matrix.format);
  const std::int64_t count = quant::scale_count(matrix.format, matrix.rows, matrix.cols);
  for (std::int64_t i = 0; i < count; ++i) {
    const float value = quant::scale_value(matrix.scale_dtype, matrix.scales.data(), i);
    if (std::fabs(value) <= largest && (signed_scales || !std::signbit(value))) continue;
    refuse(checkpoint, scale,
           signed_scales ? fmt::format("scales of at most {:.4g}", largest)
                         : fmt::format("scales from 0 to {:.4g}", largest),
           fmt::format("{} at {}", value, element_text(scale.shape, i)));
  }
}

float read_global_scale(const Checkpoint& checkpoint, const TensorSource& source, bool reciprocal) {
  float stored = 0.0f;
  read_all(checkpoint, source, std::as_writable_bytes(std::span(&stored, 1)));
  const float global = reciprocal ? quant::nvfp4_from_reciprocal(stored) : stored;
  if (stored > 0.0f && global > 0.0f && global <= quant::kNvfp4MaxFiniteGlobal) return global;
  refuse(checkpoint, source,
         reciprocal
             ? "a positive number (the reciprocal of the global scale)"
             : fmt::format("a positive number of at most {:.4g}", quant::kNvfp4MaxFiniteGlobal),
         fmt::format("{}", stored));
}

void check_weight_shape(const Checkpoint& checkpoint, const TensorSource& source, std::int64_t rows,
                        std::int64_t cols) {
  std::int64_t shape[2];
  read_ints(checkpoint, source, shape);
  if (shape[0] == rows && shape[1] == cols) return;
  refuse(checkpoint, source, fmt::format("[{}, {}]", rows, cols),
         fmt::format("[{}, {}]", shape[0], shape[1]));
}

// Trivial means that column c belongs to group c / group.
void check_group_index(const Checkpoint& checkpoint, const TensorSource& source, std::int64_t group,
                       std::int64_t cols) {
  std::vector<std::int64_t> groups(static_cast<std::size_t>(cols));
  read_ints(checkpoint, source, groups);
  for (std::int64_t c = 0; c < cols; ++c) {
    const std::int64_t found = groups[static_cast<std::size_t>(c)];
    if (found == c / group) continue;
    refuse(checkpoint, source,
           fmt::format("group {} for column {}, the columns in the order of their groups",
                       c / group, c),
           fmt::format("{}: act-order is not supported", found));
  }
}

}  // namespace

quant::HostMatrix read_matrix(const Checkpoint& checkpoint, const WeightParts& parts,
                              const WeightFormat& format, std::int64_t rows, std::int64_t cols) {
  quant::HostMatrix matrix = quant::make_host_matrix(format.format, rows, cols, format.scale_dtype);
  if (parts.shape.stored != nullptr) check_weight_shape(checkpoint, parts.shape, rows, cols);
  if (parts.group_index.stored != nullptr)
    check_group_index(checkpoint, parts.group_index, quant::traits(format.format).block_cols, cols);
  if (format.format == Format::kNvfp4)
    matrix.global_scale =
        read_global_scale(checkpoint, parts.global_scale, format.reciprocal_global);
  read_codes(checkpoint, parts.weight, matrix);
  if (parts.scale.stored != nullptr) read_scales(checkpoint, parts.scale, matrix);
  return matrix;
}

ScaleScan scan_scales(const Checkpoint& checkpoint, const WeightParts& parts,
                      const WeightFormat& format, std::int64_t rows, std::int64_t cols) {
  ScaleScan scan;
  const auto note = [&](const auto& check) {
    try {
      check();
    } catch (const CheckpointError& error) {
      scan.problems.emplace_back(error.what());
    }
  };
  quant::HostMatrix matrix;  // without codes
  matrix.format = format.format;
  matrix.rows = rows;
  matrix.cols = cols;
  matrix.scale_dtype = format.scale_dtype;
  matrix.scales = quant::AlignedBytes(
      static_cast<std::size_t>(quant::scale_bytes(format.format, rows, cols, format.scale_dtype)));
  if (parts.shape.stored != nullptr)
    note([&] { check_weight_shape(checkpoint, parts.shape, rows, cols); });
  if (parts.group_index.stored != nullptr)
    note([&] {
      check_group_index(checkpoint, parts.group_index, quant::traits(format.format).block_cols,
                        cols);
    });
  if (format.format == Format::kNvfp4)
    note([&] {
      scan.global_scale =
          read_global_scale(checkpoint, parts.global_scale, format.reciprocal_global);
    });
  if (parts.scale.stored == nullptr) return scan;
  note([&] { read_scales(checkpoint, parts.scale, matrix); });
  scan.stats = quant::scale_stats(matrix);
  return scan;
}

void read_ints(const Checkpoint& checkpoint, const TensorSource& source,
               std::span<std::int64_t> out) {
  if (source.stored->dtype == DType::kI64)
    return read_all(checkpoint, source, std::as_writable_bytes(out));
  std::vector<std::int32_t> narrow(out.size());
  read_all(checkpoint, source, std::as_writable_bytes(std::span(narrow)));
  std::copy(narrow.begin(), narrow.end(), out.begin());
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
