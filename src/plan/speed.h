// How long a decode step and a prompt take: bytes, arithmetic, launches and links (docs/plan.md, "Speed").
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/memory.h"

namespace nibble::plan {

inline constexpr int kBatches[] = {1, 4, 16, 64, 256};

struct DecodeEstimate {
  int batch = 0;           // sequences, each at `context` tokens, without drafting
  std::int64_t bytes = 0;  // weights and cache that the step reads, each once
  double ms = 0.0;
  double floor_ms =
      0.0;  // bytes or arithmetic at the machine's nominal rates, split evenly over its GPUs
  double tokens_per_s = 0.0;  // of the whole batch
};

struct SpeedPlan {
  std::vector<DecodeEstimate> decode;  // kBatches
  double prefill_tokens_per_s = 0.0;   // one prompt of `context` tokens at a time
  bool measured = false;  // every kernel's cost model was: "basis: kernel"; else "basis: roofline"
  std::vector<ExplainLine> lines;
};

// Experts of a layer that `tokens` tokens touch, each choosing `top` of `experts` at random: experts * (1 - (1 - top /
// experts)^tokens) (quantization.md 5.1).
double distinct_experts(int experts, int top, double tokens);

// Bytes of the backbone that a step of `tokens` tokens reads, the cache not counted.
double step_weight_bytes(const WeightGroups& weights, const model::ModelConfig& config,
                         double tokens);

SpeedPlan plan_speed(const model::ModelConfig& config, const WeightGroups& weights,
                     const PlanOptions& options);

}  // namespace nibble::plan
