#include "plan/weight_format.h"

#include <fmt/format.h>

namespace nibble::plan {
namespace {

using quant::Format;
using tensor::DType;

bool is_e8m0(const TensorFact& t) {
  return t.dtype == DType::kF8E8M0 || t.dtype == DType::kU8;
}

WeightFormat known(Format format, Arithmetic arithmetic, std::int64_t rows, std::int64_t cols) {
  return {quant::format_name(format), format, arithmetic, rows, cols};
}

WeightFormat named(std::string name, Arithmetic arithmetic, std::int64_t rows, std::int64_t cols) {
  return {std::move(name), std::nullopt, arithmetic, rows, cols};
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
    return known(Format::kMxfp4, Arithmetic::kFp8, rows, cols);
  if (per_scale == 16 && t.scale->dtype == DType::kF8E4M3)
    return named("NVFP4", Arithmetic::kFp4, rows, cols);
  return named("4-bit, unknown scales", Arithmetic::kBf16, rows, cols);
}

WeightFormat int4(const TensorFact& codes, const WeightTensors& t) {
  const std::int64_t rows = codes.shape[0], cols = 8 * codes.shape[1];
  return named(
      fmt::format("INT4 g{}{}", group(t.scale, rows, cols), t.zero_point ? " (asymmetric)" : ""),
      Arithmetic::kBf16, rows, cols);
}

WeightFormat fp8(const TensorFact& codes, const WeightTensors& t) {
  const std::int64_t rows = codes.shape[0], cols = codes.shape[1];
  if (!t.scale) return named("FP8, no scale", Arithmetic::kFp8, rows, cols);
  for (const std::int64_t size : {128, 32}) {
    if (!has_blocks(*t.scale, rows, cols, size)) continue;
    if (size == 128 && is_e8m0(*t.scale))
      return known(Format::kFp8Block128, Arithmetic::kFp8, rows, cols);
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
  switch (codes->dtype) {
    case DType::kF32:
    case DType::kF16:  // widened at load
      return known(Format::kF32, Arithmetic::kBf16, rows, cols);
    case DType::kBF16:
      return known(Format::kBF16, Arithmetic::kBf16, rows, cols);
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
