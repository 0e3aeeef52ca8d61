// Activations of one step, allocated once for the largest step.
#pragma once

#include "model/config.h"
#include "ops/backend.h"

namespace nibble::model {

// n = rows of the step at hand. Attention and experts reuse the same buffers layer after layer.
struct Workspace {
  Workspace(ops::Backend& backend, const ModelConfig& config, std::int64_t max_rows);

  std::int64_t max_rows;
  tensor::View streams;        // [n, hc, D] the target's residual streams
  tensor::View mtp_streams;    // [n, hc, D] the drafter's
  tensor::View other_streams;  // [n, hc, D] rows that were gathered; streams normed for the drafter
  tensor::View post, comb;     // [n, hc], [n, hc, hc]
  tensor::View x;              // [n, D] a sublayer's input
  tensor::View out;            // [n, D] a sublayer's output
  tensor::View qr;             // [n, q_lora]
  tensor::View q;              // [n, H, hd]
  tensor::View kv;             // [n, hd]
  ops::RowPool window_rows;    // n rows of hd channels, as the cache stores them
  tensor::View o;              // [n, H, hd]
  tensor::View u;              // [n, groups * o_lora]
  tensor::View comp_values, comp_gates;    // [n, 2 * hd], [n, hd] for ratio 128
  tensor::View index_values, index_gates;  // [n, 2 * di]
  tensor::View index_q;                    // [n, Hi, di]
  tensor::View index_weights;              // [n, Hi]
  tensor::View selected;                   // I32 [n, topk]
  tensor::View experts;                    // I32 [n, k]
  tensor::View expert_weights;             // [n, k]
  tensor::View embedded;                   // [n, D] token embeddings for the drafter
  tensor::View head;                       // [n, D]
  tensor::View logits;                     // [n, V]
  tensor::View best;                       // I32 [n]
};

}  // namespace nibble::model
