#include "checkpoint/weight_format.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

#include "checkpoint/quote.h"
#include "nibble/status.h"
#include "quant/fp8_block.h"
#include "quant/mxfp4.h"
#include "quant/nvfp4.h"

namespace nibble::checkpoint {
namespace {

using quant::Format;
using tensor::DType;
using tensor::Shape;

// A matrix under examination: every refusal names the tensor at fault.
class Detector {
 public:
  Detector(const Checkpoint& checkpoint, const WeightParts& parts, std::int64_t rows,
           std::int64_t cols)
      : checkpoint_(checkpoint), parts_(parts), rows_(rows), cols_(cols) {}

  WeightFormat run() const {
    if (has(parts_.zero_point))
      refuse(parts_.zero_point, "symmetric INT4 (no zero points)",
             "zero points: asymmetric INT4 is not supported");
    switch (parts_.weight.stored->dtype) {
      case DType::kI32:
        return int4();
      case DType::kI8:
      case DType::kU8:
        return fp4();
      case DType::kF8E4M3:
        return fp8();
      default:
        return plain();
    }
  }

 private:
  static bool has(const TensorSource& source) { return source.stored != nullptr; }

  [[noreturn]] void refuse(const TensorSource& source, const std::string& expected,
                           const std::string& found) const {
    throw CheckpointError(
        fmt::format("{}: expected {}, found {}", where(checkpoint_, source), expected, found));
  }

  static std::string text(const TensorSource& source) {
    return fmt::format("{} {}", tensor::dtype_name(source.stored->dtype), source.shape.to_string());
  }

  std::string text(const TensorSource& source, const Shape& expected) const {
    return text(source) + shape_hint(source.shape, expected);
  }

  // Everything that a weight of this size could be.
  [[noreturn]] void refuse_weight(const Shape& nearest) const {
    std::string expected =
        fmt::format("F8_E4M3, BF16, F32 or F16 {}", Shape{rows_, cols_}.to_string());
    if (cols_ % 16 == 0) {
      expected += fmt::format(" or {} as I8 (U8) {}", cols_ % 32 == 0 ? "MXFP4 or NVFP4" : "NVFP4",
                              Shape{rows_, cols_ / 2}.to_string());
    }
    if (cols_ % 32 == 0)
      expected += fmt::format(" or INT4 as I32 {}", Shape{rows_, cols_ / 8}.to_string());
    refuse(parts_.weight, expected, text(parts_.weight, nearest));
  }

  WeightFormat missing(Format format, std::string suffix, const Shape& shape) const {
    WeightFormat out{format, quant::traits(format).scale_dtype};
    out.missing = std::move(suffix);
    out.missing_shape = shape;
    return out;
  }

  // What another format would bring, beside a weight that cannot have it.
  void refuse_foreign_global(std::string_view weight_is) const {
    if (!has(parts_.global_scale)) return;
    refuse(parts_.global_scale, fmt::format("no global scale beside {}", weight_is),
           fmt::format("{}: the tensors contradict each other", text(parts_.global_scale)));
  }

  WeightFormat plain() const {
    const DType dtype = parts_.weight.stored->dtype;
    const Shape full{rows_, cols_};
    if (parts_.weight.shape != full ||
        (dtype != DType::kBF16 && dtype != DType::kF32 && dtype != DType::kF16))
      refuse_weight(full);
    if (has(parts_.scale))
      refuse(parts_.scale, fmt::format("no scale beside a {} weight", tensor::dtype_name(dtype)),
             text(parts_.scale));
    refuse_foreign_global(fmt::format("a {} weight", tensor::dtype_name(dtype)));
    return {dtype == DType::kBF16 ? Format::kBF16 : Format::kF32};
  }

  WeightFormat fp8() const {
    const Shape full{rows_, cols_};
    if (parts_.weight.shape != full) refuse_weight(full);
    refuse_foreign_global("an F8_E4M3 weight");
    const Shape large{quant::fp8_blocks(rows_), quant::fp8_blocks(cols_)};
    const Shape small{quant::fp8_blocks(rows_, quant::kFp8SmallBlock),
                      quant::fp8_blocks(cols_, quant::kFp8SmallBlock)};
    if (!has(parts_.scale)) return missing(Format::kFp8Block128, ".scale", large);
    const TensorSource& scale = parts_.scale;
    const DType stored = scale.stored->dtype;
    const DType dtype = stored == DType::kU8 ? DType::kF8E8M0 : stored;
    // Where both shapes are the same there is one block, and both mean the same.
    for (const Format format : {Format::kFp8Block128, Format::kFp8Block32}) {
      const Shape& shape = format == Format::kFp8Block128 ? large : small;
      if (scale.shape == shape && quant::allows_scale_dtype(format, dtype)) return {format, dtype};
    }
    refuse(scale,
           fmt::format("F8_E8M0 (or U8, F32, BF16) {} as the scale of FP8 128x128, or {} of 32x32",
                       large.to_string(), small.to_string()),
           text(scale, large));
  }

  WeightFormat fp4() const {
    const TensorSource& scale = parts_.scale;
    const Shape halves{rows_, cols_ / 2};
    if (parts_.weight.shape == Shape{rows_, cols_})
      refuse(parts_.weight, fmt::format("two codes a byte, {}", halves.to_string()),
             fmt::format("{}: dense 8-bit integers are not supported", text(parts_.weight)));
    if (cols_ % 16 != 0 || parts_.weight.shape != halves) refuse_weight(halves);
    const Shape per_16{rows_, cols_ / quant::kNvfp4Group};
    const Shape per_32{rows_, cols_ / quant::kMxfp4Group};
    const Format likely = has(parts_.global_scale) ? Format::kNvfp4 : Format::kMxfp4;
    if (!has(scale)) return missing(likely, ".scale", likely == Format::kNvfp4 ? per_16 : per_32);
    switch (scale.stored->dtype) {
      case DType::kF8E4M3:
        return nvfp4(per_16);
      case DType::kF8E8M0:
      case DType::kU8:
        if (cols_ % 32 != 0 || scale.shape != per_32)
          refuse(scale, fmt::format("F8_E8M0 (or U8) {} as the scale of MXFP4", per_32.to_string()),
                 scale_text(per_32));
        refuse_foreign_global(
            fmt::format("MXFP4, which the {} scales say", tensor::dtype_name(scale.stored->dtype)));
        return {Format::kMxfp4};
      default:
        refuse(scale,
               fmt::format("F8_E8M0 (or U8) {} as the scale of MXFP4, or F8_E4M3 {} of NVFP4",
                           per_32.to_string(), per_16.to_string()),
               text(scale));
    }
  }

  WeightFormat nvfp4(const Shape& per_16) const {
    if (parts_.scale.shape != per_16)
      refuse(parts_.scale, fmt::format("F8_E4M3 {} as the scale of NVFP4", per_16.to_string()),
             scale_text(per_16));
    const TensorSource& global = parts_.global_scale;
    if (!has(global)) return missing(Format::kNvfp4, ".weight_scale_2", {});
    const bool one = global.shape == Shape{} || global.shape == Shape{1};
    if (global.stored->dtype != DType::kF32 || !one)
      refuse(global, "F32 [] or [1] as the global scale of NVFP4", text(global));
    WeightFormat out{Format::kNvfp4, DType::kF8E4M3};
    out.reciprocal_global = std::string_view(global.stored->name).ends_with(".weight_global_scale");
    return out;
  }

  WeightFormat int4() const {
    const TensorSource& scale = parts_.scale;
    const Shape words{rows_, cols_ / 8};
    if (cols_ % 8 != 0 || parts_.weight.shape != words) refuse_weight(words);
    refuse_foreign_global("an INT4 weight");
    const auto groups = [&](std::int64_t size) { return Shape{rows_, cols_ / size}; };
    if (!has(scale)) return missing(Format::kInt4G128, ".scale", groups(128));
    for (const Format format : {Format::kInt4G32, Format::kInt4G128}) {
      const std::int64_t size = quant::traits(format).block_cols;
      if (cols_ % size != 0 || scale.shape != groups(size)) continue;
      if (!quant::allows_scale_dtype(format, scale.stored->dtype)) break;
      check_int4_extras(format);
      return {format, scale.stored->dtype};
    }
    refuse(scale,
           fmt::format("BF16, F16 or F32 {} as the scale of INT4 in groups of 128, or {} of 32",
                       groups(128).to_string(), groups(32).to_string()),
           scale_text(groups(128)));
  }

  void check_int4_extras(Format) const {
    const auto integer = [](const TensorSource& s) {
      return s.stored->dtype == DType::kI64 || s.stored->dtype == DType::kI32;
    };
    const TensorSource& index = parts_.group_index;
    if (has(parts_.shape) && (!integer(parts_.shape) || parts_.shape.shape != Shape{2}))
      refuse(parts_.shape, "I64 or I32 [2]", text(parts_.shape));
    if (has(index) && (!integer(index) || index.shape != Shape{cols_}))
      refuse(index, fmt::format("I32 or I64 {}", Shape{cols_}.to_string()), text(index));
  }

  // The scale with the group size that its shape means, when it means one.
  std::string scale_text(const Shape& expected) const {
    const Shape& shape = parts_.scale.shape;
    if (shape.rank() != 2 || shape[0] != rows_ || shape[1] < 1 || cols_ % shape[1] != 0)
      return text(parts_.scale, expected);
    return fmt::format("{} (groups of {})", text(parts_.scale), cols_ / shape[1]);
  }

  const Checkpoint& checkpoint_;
  const WeightParts& parts_;
  const std::int64_t rows_, cols_;
};

}  // namespace

std::string where(const Checkpoint& checkpoint, const TensorSource& source) {
  std::string text = checkpoint.where(*source.stored);
  if (source.name != source.stored->name) text += fmt::format(" ({})", quote(source.name));
  return text;
}

WeightFormat detect_format(const Checkpoint& checkpoint, const WeightParts& parts,
                           std::int64_t rows, std::int64_t cols) {
  return Detector(checkpoint, parts, rows, cols).run();
}

std::string shape_hint(const Shape& found, const Shape& expected) {
  if (found.rank() != 2 || expected.rank() != 2 || found == expected) return {};
  if (found == Shape{expected[1], expected[0]}) return " (transposed)";
  for (const std::int64_t parts : {2, 4, 8, 16}) {
    for (int dim = 0; dim < 2; ++dim) {
      Shape slice =
          dim == 0 ? Shape{found[0] * parts, found[1]} : Shape{found[0], found[1] * parts};
      if (found[dim] < 1 || slice != expected) continue;
      return fmt::format(" (1/{} of the {}: already split for tensor parallelism?)", parts,
                         dim == 0 ? "rows" : "columns");
    }
  }
  return {};
}

}  // namespace nibble::checkpoint
