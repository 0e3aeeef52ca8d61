// What `nibble convert --to` can make, and the published tensor layout of each (quantization.md 2.2).
//
//   mxfp4  DeepSeek             .weight I8 [N, K/2], .scale F8_E8M0 [N, K/32]
//   nvfp4  ModelOpt             .weight U8 [N, K/2], .weight_scale F8_E4M3 [N, K/16], .weight_scale_2 F32 [],
//                               .input_scale F32 []
//   int4   compressed-tensors   .weight_packed I32 [N, K/8], .weight_scale BF16 [N, K/128], .weight_shape I64 [2]
//   fp8    DeepSeek (Base)      .weight F8_E4M3 [N, K], .scale F32 [N/128, K/128], a power of two each
//   bf16                        .weight BF16 [N, K]
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "convert/safetensors_writer.h"
#include "quant/matrix_format.h"

namespace nibble::convert {

enum class Target { kMxfp4, kNvfp4, kInt4, kFp8, kBf16 };

inline constexpr std::array kTargets = {Target::kMxfp4, Target::kNvfp4, Target::kInt4, Target::kFp8,
                                        Target::kBf16};

std::string_view target_name(Target target);  // as on the command line
std::optional<Target> find_target(std::string_view name);
quant::Format target_format(Target target);

// What a tensor of a converted matrix holds.
enum class Part { kCodes, kScales, kGlobalScale, kInputScale, kShape, kGroupIndex };

struct MatrixTensor {
  Part part = Part::kCodes;
  NewTensor tensor;
};

// The tensors of matrix `name` [rows, cols] in the layout of `target`, the codes first. scale_dtype:
// of the scales as written (target_scale_dtype, or what the source has where it is kept).
std::vector<MatrixTensor> matrix_tensors(Target target, const std::string& name, std::int64_t rows,
                                         std::int64_t cols, tensor::DType scale_dtype);

// The type that freshly encoded scales have in the layout; meaningless for bf16.
tensor::DType target_scale_dtype(Target target);

// The columns that a row must divide into (1: any number).
std::int64_t target_columns(Target target);

}  // namespace nibble::convert
