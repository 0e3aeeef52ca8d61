// The weights of a DeepSeek-V4 model in a backend's memory, named as the checkpoint names them
// (deepseek-v4.md 7.2).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "checkpoint/weight_binder.h"
#include "model/config.h"
#include "nibble/engine.h"
#include "ops/backend.h"

namespace nibble::model {

struct CompressorWeights {
  ops::Matrix wkv;    // [W, D], W = head_dim or 2 * head_dim (ratio 4)
  ops::Matrix wgate;  // [W, D]
  tensor::View ape;   // [ratio, W]
  tensor::View norm;  // [head_dim]
};

struct IndexerWeights {
  ops::Matrix wq_b;          // [Hi * di, q_lora]
  ops::Matrix weights_proj;  // [Hi, D]
  CompressorWeights compressor;
};

struct AttentionWeights {
  int ratio = 0;
  ops::Matrix wq_a;                             // [q_lora, D]
  ops::Matrix wq_b;                             // [H * hd, q_lora]
  ops::Matrix wkv;                              // [hd, D]
  ops::Matrix wo_a;                             // [groups * o_lora, H * hd / groups]
  ops::Matrix wo_b;                             // [D, groups * o_lora]
  tensor::View q_norm;                          // [q_lora]
  tensor::View kv_norm;                         // [hd]
  tensor::View sink;                            // [H]
  std::optional<CompressorWeights> compressor;  // ratio != 0
  std::optional<IndexerWeights> indexer;        // ratio 4
  bool whole_segment = false;                   // a DSpark stage: queries see their whole block
};

struct MoeWeights {
  ops::Matrix gate;         // [E, D]
  tensor::View bias;        // [E], score routing
  tensor::View hash_table;  // I32 [V, k], hash routing
  std::vector<ops::ExpertWeights> routed;
  ops::ExpertWeights shared;
};

struct BlockWeights {
  ops::HcSite attn_site, ffn_site;
  tensor::View attn_norm, ffn_norm;  // [D]
  AttentionWeights attn;
  MoeWeights ffn;
};

struct HeadWeights {
  tensor::View fn, base, scale;  // [hc, hc * D], [hc], [1]
  tensor::View norm;             // [D]
};

struct MtpWeights {
  ops::Matrix e_proj, h_proj;  // [D, D]
  tensor::View enorm, hnorm;   // [D]
  BlockWeights block;          // ratio 0, score routed
  HeadWeights head;
  ops::Matrix embed, lm_head;  // [V, D] of the drafter's own; empty: the model's
};

struct DsparkWeights {
  ops::Matrix main_proj;             // [D, target layers * D]
  tensor::View main_norm;            // [D]
  std::vector<BlockWeights> stages;  // ratio 0, score routed
  HeadWeights head;
  ops::Matrix markov_w1, markov_w2;  // [V, rank]: rows by token, and what each adds to the logits
  tensor::View confidence;           // [1, D + rank]
};

struct ModelWeights {
  ops::Matrix embed, lm_head;  // [V, D]
  std::vector<BlockWeights> layers;
  HeadWeights head;
  std::optional<MtpWeights> mtp;
  std::optional<DsparkWeights> dspark;

  std::vector<KernelChoice> kernels;  // the start-up table
  std::vector<std::string> notes;     // lines for the log
  std::int64_t bytes = 0;
};

// Fills every weight once and leaves none of the checkpoint's tensors unexplained, or throws
// CheckpointError. A config that promises an MTP block while the files hold no mtp tensor at all
// gives a note and no drafter; some but not all of its tensors are refused. Whether the drafter is a DSpark one is read from
// the files; without the dspark_* keys it is left out, with a note.
//
// Any mix of formats is accepted, matrix by matrix. What the folder's metadata says about them is compared
// afterwards: a line in `notes` for each contradiction. Layouts that are for inspection only
// (checkpoint/known_layouts.h) are refused.
ModelWeights load_weights(checkpoint::WeightBinder& binder, const ModelConfig& config,
                          ops::Backend& backend);

}  // namespace nibble::model
