// What would make a plan fit: each remedy is a changed plan that has been computed, not a guess.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/memory.h"

namespace nibble::plan {

// Empty when it fits. Otherwise, one line each, of the changes that suffice alone: fewer tokens of context, fewer sequences,
// narrower cached rows, no drafter, more GPUs, another kind of GPU.
std::vector<std::string> remedies(const model::ModelConfig& config, const WeightGroups& weights,
                                  const PlanOptions& options);

// The most sequences of options.context tokens that fit; 0: none.
std::int64_t sequences_that_fit(const model::ModelConfig& config, const WeightGroups& weights,
                                PlanOptions options);

}  // namespace nibble::plan
