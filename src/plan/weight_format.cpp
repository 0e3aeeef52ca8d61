#include "plan/weight_format.h"

#include <fmt/format.h>

namespace nibble::plan {
namespace {

using quant::Format;
using tensor::DType;

constexpr std::int64_t kMaxDim = std::int64_t{1} << 40;

bool is_e8m0(const TensorFact& t) {
  return t.dtype == DType::kF8E8M0 || t.dtype == DType::kU8;
}

// "FP8 128x128" of "FP8 128x128 (F32)": the scales' type does not change who holds it.
std::string_view base_name(std::string_view name) {
  return name.substr(0, name.find(" ("));
}

// The format of that name, when this build holds it.
std::optional<Format> held_format(std::string_view name) {
  for (const Format format : quant::kFormats)
    if (base_name(quant::format_name(format)) == base_name(name)) return format;
  return std::nullopt;
}

WeightFormat named(std::string name, Arithmetic arithmetic, std::int64_t rows, std::int64_t cols) {
  const auto format = held_format(name);
  return {std::move(name), format, arithmetic, rows, cols};
}

WeightFormat named(Format format, Arithmetic arithmetic, std::int64_t rows, std::int64_t cols) {
  return named(quant::format_name(format), arithmetic, rows, cols);
}

// Columns a scale covers; 0 when there is no such whole number.
std::int64_t group(const TensorFact* scale, std::int64_t rows, std::int64_t cols) {
  if (!scale || scale->shape.rank() != 2 || scale->shape[0] != rows || scale->shape[1] < 1)
    return 0;
  return cols % scale->shape[1] == 0 ? cols / scale->shape[1] : 0;
}

bool has_blocks(const TensorFact& scale, std::int64_t rows, std::int64_t cols, std::int64_t size) {
  return scale.shape.rank() == 2 && scale.shape[0] == (rows + size - 1) / size &&
         scale.shape[1] == (cols + size - 1) / size;
}

WeightFormat four_bit(const TensorFact& codes, const WeightTensors& t) {
  const std::int64_t rows = codes.shape[0], cols = 2 * codes.shape[1];
  const std::int64_t per_scale = group(t.scale, rows, cols);
  if (per_scale == 32 && is_e8m0(*t.scale))
    return named(Format::kMxfp4, Arithmetic::kFp8, rows, cols);
  if (per_scale == 16 && t.scale->dtype == DType::kF8E4M3)
    return named("NVFP4", Arithmetic::kFp4, rows, cols);
  return named("4-bit, unknown scales", Arithmetic::kBf16, rows, cols);
}

WeightFormat int4(const TensorFact& codes, const WeightTensors& t) {
  const std::int64_t rows = codes.shape[0], cols = 8 * codes.shape[1];
  std::string name = "INT4, no scale";
  if (t.scale) name = fmt::format("INT4 g{}", group(t.scale, rows, cols));
  if (t.scale && t.scale->dtype != DType::kBF16)
    name += fmt::format(" ({})", dtype_name(t.scale->dtype));
  if (t.zero_point) name = "asymmetric " + name;
  return named(std::move(name), Arithmetic::kBf16, rows, cols);
}

WeightFormat fp8(const TensorFact& codes, const WeightTensors& t) {
  const std::int64_t rows = codes.shape[0], cols = codes.shape[1];
  if (!t.scale) return named("FP8, no scale", Arithmetic::kFp8, rows, cols);
  for (const std::int64_t size : {128, 32}) {
    if (!has_blocks(*t.scale, rows, cols, size)) continue;
    if (size == 128 && is_e8m0(*t.scale))
      return named(Format::kFp8Block128, Arithmetic::kFp8, rows, cols);
    const std::string scales = is_e8m0(*t.scale) ? "E8M0" : std::string(dtype_name(t.scale->dtype));
    return named(fmt::format("FP8 {0}x{0} ({1})", size, scales), Arithmetic::kFp8, rows, cols);
  }
  return named("FP8, unknown scales", Arithmetic::kFp8, rows, cols);
}

}  // namespace

WeightFormat weight_format(const WeightTensors& t) {
  const TensorFact* codes = t.packed ? t.packed : t.weight;
  if (!codes) return named("no weight", Arithmetic::kBf16, 0, 0);
  if (codes->shape.rank() != 2)
    return named(std::string(dtype_name(codes->dtype)), Arithmetic::kBf16, 0, 0);
  const std::int64_t rows = codes->shape[0], cols = codes->shape[1];
  // A header may claim anything of a tensor without elements.
  if (rows < 1 || cols < 1 || rows > kMaxDim || cols > kMaxDim)
    return named(std::string(dtype_name(codes->dtype)), Arithmetic::kBf16, 0, 0);
  switch (codes->dtype) {
    case DType::kF32:
    case DType::kF16:  // widened at load
      return named(Format::kF32, Arithmetic::kBf16, rows, cols);
    case DType::kBF16:
      return named(Format::kBF16, Arithmetic::kBf16, rows, cols);
    case DType::kF8E4M3:
      return fp8(*codes, t);
    case DType::kI8:
    case DType::kU8:
      return four_bit(*codes, t);
    case DType::kI32:
      if (t.packed) return int4(*codes, t);
      break;
    default:
      break;
  }
  return named(std::string(dtype_name(codes->dtype)), Arithmetic::kBf16, 0, 0);
}

}  // namespace nibble::plan
