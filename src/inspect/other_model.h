// Matrices of a checkpoint whose network this version does not know, as far as its tensors' names tell.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "model/deepseek_v4/weight_walk.h"

namespace nibble::inspect {

// What config.json says about a model that ModelConfig refuses; 0 or "" where it says nothing.
struct OtherConfig {
  std::string model_type;
  std::int64_t hidden_size = 0;
  std::int64_t expert_dim = 0;  // moe_intermediate_size
};
OtherConfig read_other_config(const checkpoint::Folder& folder);

// Every NAME.weight with the tensors beside it. Columns of packed weights come from the config (w1, w3: hidden
// size; w2: expert width), of the others from their shape. Matrices that fit no format are lines in
// `problems`; packed ones that are not an expert's, whose columns nothing tells, are lines in `notes`.
std::vector<model::MatrixUse> other_matrices(const checkpoint::Checkpoint& checkpoint,
                                             const OtherConfig& config,
                                             std::vector<std::string>& notes,
                                             std::vector<std::string>& problems);

}  // namespace nibble::inspect
