// Which format a matrix has, decided from its tensors' headers alone (quantization.md 2.3): dtype,
// shape against [rows, cols] of the model's configuration, and the names beside it. What config.json
// says about quantization has no say here (quant_claims.h compares it afterwards).
//
//   I8 or U8 [rows, cols/2]        scale F8_E8M0 or U8 [rows, cols/32]                MXFP4
//   I8 or U8 [rows, cols/2]        scale F8_E4M3 [rows, cols/16], a global scale F32  NVFP4
//   I32 [rows, cols/8], packed     scale BF16, F16 or F32 [rows, cols/g], g = 32, 128 INT4 (symmetric)
//   F8_E4M3 [rows, cols]           scale F8_E8M0, U8, F32 or BF16
//                                  [ceil(rows/b), ceil(cols/b)], b = 128 or 32        FP8 blocks
//   BF16, F32 or F16 [rows, cols]  none                                               BF16, F32
//
// Spellings, each mapped onto a canonical name by tensor_names.h:
//   weight        .weight  .weight_packed
//   scale         .scale  .weight_scale  .weight_scale_inv (a multiplier all the same)
//   global scale  .weight_scale_2 (a multiplier), .weight_global_scale (its reciprocal); [] or [1]
//   input scale   .input_scale  .input_global_scale: known, and not used
#pragma once

#include <cstdint>
#include <string>

#include "checkpoint/checkpoint.h"
#include "checkpoint/tensor_names.h"
#include "quant/matrix_format.h"
#include "tensor/shape.h"

namespace nibble::checkpoint {

// "FOLDER/SHARD: tensor 'STORED' ('CANONICAL')".
std::string where(const Checkpoint& checkpoint, const TensorSource& source);

// The tensors of one matrix; stored == nullptr where the files have none.
struct WeightParts {
  TensorSource weight, scale, global_scale, input_scale;
  TensorSource shape;        // I64 or I32 [2]: rows, cols
  TensorSource zero_point;   // asymmetric INT4: refused
  TensorSource group_index;  // I32 or I64 [cols]: the group of each column
};

struct WeightFormat {
  quant::Format format = quant::Format::kBF16;
  tensor::DType scale_dtype = tensor::DType::kF8E8M0;  // a U8 scale is E8M0
  bool reciprocal_global = false;                      // the file holds 1 / global
  // Canonical suffix and shape of a tensor that the format needs and the files lack, or "".
  std::string missing = {};
  tensor::Shape missing_shape = {};
};

// Throws CheckpointError naming tensor, expected and found when the parts fit no format, or more than
// one. parts.weight is there.
WeightFormat detect_format(const Checkpoint& checkpoint, const WeightParts& parts,
                           std::int64_t rows, std::int64_t cols);

// What a wrong shape looks like, to say behind it: " (transposed)", " (1/8 of the rows: already split
// for tensor parallelism?)", or "".
std::string shape_hint(const tensor::Shape& found, const tensor::Shape& expected);

}  // namespace nibble::checkpoint
