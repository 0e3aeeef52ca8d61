#include "convert/target.h"

#include "base/check.h"

namespace nibble::convert {

using quant::Format;
using tensor::DType;
using tensor::Shape;

std::string_view target_name(Target target) {
  switch (target) {
    case Target::kMxfp4:
      return "mxfp4";
    case Target::kNvfp4:
      return "nvfp4";
    case Target::kInt4:
      return "int4";
    case Target::kFp8:
      return "fp8";
    case Target::kBf16:
      return "bf16";
  }
  NIBBLE_CHECK(false, "target {}", static_cast<int>(target));
}

std::optional<Target> find_target(std::string_view name) {
  for (const Target target : kTargets)
    if (target_name(target) == name) return target;
  return std::nullopt;
}

Format target_format(Target target) {
  switch (target) {
    case Target::kMxfp4:
      return Format::kMxfp4;
    case Target::kNvfp4:
      return Format::kNvfp4;
    case Target::kInt4:
      return Format::kInt4G128;
    case Target::kFp8:
      return Format::kFp8Block128;
    case Target::kBf16:
      return Format::kBF16;
  }
  NIBBLE_CHECK(false, "target {}", static_cast<int>(target));
}

std::vector<MatrixTensor> matrix_tensors(Target target, const std::string& name, std::int64_t rows,
                                         std::int64_t cols, DType scale_dtype) {
  const quant::FormatTraits& t = quant::traits(target_format(target));
  const Shape scales = t.block_cols == 0 ? Shape{}
                                         : Shape{(rows + t.block_rows - 1) / t.block_rows,
                                                 (cols + t.block_cols - 1) / t.block_cols};
  switch (target) {
    case Target::kMxfp4:
      return {{Part::kCodes, {name + ".weight", DType::kI8, {rows, cols / 2}}},
              {Part::kScales, {name + ".scale", scale_dtype, scales}}};
    case Target::kNvfp4:
      return {{Part::kCodes, {name + ".weight", DType::kU8, {rows, cols / 2}}},
              {Part::kScales, {name + ".weight_scale", scale_dtype, scales}},
              {Part::kGlobalScale, {name + ".weight_scale_2", DType::kF32, {}}},
              {Part::kInputScale, {name + ".input_scale", DType::kF32, {}}}};
    case Target::kInt4:
      return {{Part::kCodes, {name + ".weight_packed", DType::kI32, {rows, cols / 8}}},
              {Part::kScales, {name + ".weight_scale", scale_dtype, scales}},
              {Part::kShape, {name + ".weight_shape", DType::kI64, {2}}}};
    case Target::kFp8:
      return {{Part::kCodes, {name + ".weight", DType::kF8E4M3, {rows, cols}}},
              {Part::kScales, {name + ".scale", scale_dtype, scales}}};
    case Target::kBf16:
      return {{Part::kCodes, {name + ".weight", DType::kBF16, {rows, cols}}}};
  }
  NIBBLE_CHECK(false, "target {}", static_cast<int>(target));
}

DType target_scale_dtype(Target target) {
  // The published FP8 checkpoints have F32 scales, and engines choose by it.
  return target == Target::kFp8 ? DType::kF32 : quant::traits(target_format(target)).scale_dtype;
}

std::int64_t target_columns(Target target) {
  const quant::FormatTraits& t = quant::traits(target_format(target));
  return t.bits == 4 ? t.block_cols : 1;
}

}  // namespace nibble::convert
