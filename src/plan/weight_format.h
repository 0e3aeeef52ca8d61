// The format of a weight from the tensors that share its name, by dtype and shape alone (quantization.md 2.3).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "plan/model_facts.h"
#include "quant/matrix_format.h"

namespace nibble::plan {

// The tensors of one weight: NAME.weight or NAME.weight_packed and what stands beside it. Null: absent.
struct WeightTensors {
  const TensorFact* weight = nullptr;        // .weight, or the bare name
  const TensorFact* packed = nullptr;        // .weight_packed
  const TensorFact* scale = nullptr;         // .scale or .weight_scale
  const TensorFact* global_scale = nullptr;  // .weight_scale_2 or .weight_global_scale
  const TensorFact* zero_point = nullptr;    // .weight_zero_point
  std::int64_t bytes = 0;                    // of all of them, input scales included
};

// What arithmetic a format is meant for; a machine without it takes the next wider one.
enum class Arithmetic { kBf16, kFp8, kFp4 };

struct WeightFormat {
  std::string name;                     // as the start-up table prints it; a plain dtype otherwise
  std::optional<quant::Format> format;  // nothing: this build cannot hold it
  Arithmetic arithmetic = Arithmetic::kBf16;
  std::int64_t rows = 0;  // of the matrix, codes unpacked; 0: not a matrix
  std::int64_t cols = 0;
};

WeightFormat weight_format(const WeightTensors& tensors);

}  // namespace nibble::plan
