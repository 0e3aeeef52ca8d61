// The tensors of a published DeepSeek-V4 checkpoint, generated from its config (deepseek-v4.md 7.2): for a model that is
// neither on this machine nor reachable.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plan/model_facts.h"

namespace nibble::plan {

enum class ExpertLayout {
  kMxfp4,  // I8 codes, E8M0 scale per 32
  kNvfp4,  // ModelOpt: U8 codes, E4M3 scale per 16, two F32 scalars; drafters stay MXFP4
};

// What the config does not say (deepseek-v4.md 5.2, 7.1).
struct DrafterShape {
  int dspark_stages = 0;  // 0: num_mtp_layers MTP blocks
  int markov_rank = 0;
};

// Dense matrices FP8 128x128 with E8M0 scales, the rest as 7.2 lists it.
std::vector<TensorFact> published_tensors(const model::ModelConfig& config,
                                          const DrafterShape& drafter,
                                          ExpertLayout experts = ExpertLayout::kMxfp4);

// The well-known models, with or without their owner: config and tensors from formulas. Nothing for any other name.
std::optional<ModelFacts> published_model(std::string_view name);

// The same for a config.json that has no weights beside it. Throws CheckpointError naming the key when the config does not
// say DeepSeek's published quantization (FP8 blocks, FP4 experts), because nothing else says what the tensors are.
ModelFacts facts_from_config(std::string name, std::string_view config_text,
                             const std::string& config_path);

std::string published_names();  // "deepseek-ai/DeepSeek-V4-Flash, ..."

}  // namespace nibble::plan
