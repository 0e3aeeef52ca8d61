// The list of weights of a random checkpoint, in file order, and their transformers names.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "golden/random_checkpoint.h"

namespace nibble::testing {

enum class WeightKind { kFp8, kFp4, kBf16, kF32, kHashTable };

struct WeightPlan {
  WeightKind kind;
  std::string name;                 // published; FP8 and FP4 matrices without .weight/.scale
  std::vector<std::int64_t> shape;  // elements
  double gain = 0.0;  // FP8, FP4: output rms for an input of rms 1; BF16, F32: standard deviation
  double offset = 0.0;
};

std::vector<WeightPlan> plan_weights(const RandomCheckpointSpec& spec);

// Routed experts keep their number; the caller stacks them.
std::string transformers_name(const std::string& published);

}  // namespace nibble::testing
