// config.json of a DeepSeek-V4 checkpoint, typed and checked (deepseek-v4.md section 1).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/folder.h"
#include "nibble/types.h"

namespace nibble::model {

struct Yarn {
  double factor = 1.0;
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  double original_max_positions = 0.0;
};

struct RopeConfig {
  double theta = 0.0;
  std::optional<Yarn> yarn;
};

// The DSpark drafter's own keys (deepseek-v4.md 5.2). How many stages it has is for the files to say.
struct DsparkConfig {
  int block_size = 0;              // tokens proposed at once, 1 to kMaxDsparkBlock
  int markov_rank = 0;             // width of the Markov head's rows
  TokenId noise_token = 0;         // stands for the tokens of a block that are not known yet
  std::vector<int> target_layers;  // whose outputs the drafter looks at, rising
};
inline constexpr int kMaxDsparkBlock = 7;

// Every member comes from the file: a key that shapes the network is never defaulted.
struct ModelConfig {
  int vocab_size = 0;
  int hidden_size = 0;  // D
  int num_layers = 0;   // L, drafters not counted
  int num_heads = 0;    // H
  int head_dim = 0;     // rotary channels last
  int rope_head_dim = 0;
  int q_lora_rank = 0;
  int o_groups = 0;
  int o_lora_rank = 0;  // per group
  int index_heads = 0;
  int index_head_dim = 0;
  int index_topk = 0;
  std::vector<int> compress_ratios;  // one of 0, 4, 128 per layer, then one per drafter stage when
                                     // the file lists it
  int sliding_window = 0;            // keys, the query's own position included
  int max_positions = 0;
  RopeConfig rope;           // ratio-0 layers and drafters
  RopeConfig compress_rope;  // ratio 4 and 128: queries, window rows, entries and index keys alike
  int num_experts = 0;
  int experts_per_token = 0;
  int expert_dim = 0;  // inner width of routed and shared experts
  int num_hash_layers = 0;
  float routed_scaling = 0.0f;
  float swiglu_limit = 0.0f;
  int hc_mult = 0;
  int hc_sinkhorn_iters = 0;
  float hc_eps = 0.0f;
  float rms_eps = 0.0f;
  int num_mtp_layers = 0;
  std::optional<DsparkConfig> dspark;  // when the file has dspark_target_layer_ids
  TokenId bos_token = 0;
  TokenId eos_token = 0;
  bool has_activation_scheme = false;  // quantization_config.activation_scheme is there

  // Reads config.json of the folder. Known spellings: the published keys, and those the transformers library
  // writes (layer_types, compress_rates, mlp_layer_types, rope_parameters). Throws CheckpointError
  // naming file and key.
  static ModelConfig load(const checkpoint::Folder& folder);
  static ModelConfig parse(std::string_view json, const std::string& file_name);
};

}  // namespace nibble::model
