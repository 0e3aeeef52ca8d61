// The one table of tensor-name spellings. The canon is DeepSeek's own: "layers.3.attn.wq_a.weight"
// beside "layers.3.attn.wq_a.scale", no "model." in front.
//
// Also understood, mixed freely: a "model." prefix; the suffixes of weight_format.h
// (".weight_packed" for ".weight", ".weight_scale" and ".weight_scale_inv" for ".scale", ".weight_scale_2" and
// ".weight_global_scale" for ".global_scale", ".input_global_scale" for ".input_scale"); the transformers library's words
// ("layers.3.self_attn.q_a_proj"); and its stacked experts, of which each canonical tensor is a
// slice:
//   experts.gate_up_proj [E, 2I, ...]   rows [0, I) of expert e are w1, rows [I, 2I) are w3
//   experts.down_proj    [E, D, ...]    expert e is w2
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "tensor/shape.h"

namespace nibble::checkpoint {

inline constexpr std::int64_t kMaxExperts = 65'536;

// Where a canonical tensor's bytes are: a contiguous part of a stored tensor, usually all of it.
struct TensorSource {
  std::string name;  // canonical
  const CheckpointTensor* stored = nullptr;
  std::int64_t offset = 0;  // bytes from the stored tensor's start
  std::int64_t bytes = 0;
  tensor::Shape shape;
};

// The canonical tensors that `stored` holds; one whose spelling is unknown stands for itself.
// `stored` must outlive the result. Throws CheckpointError when a stacked tensor's shape cannot be
// cut into experts; `where` begins that message.
std::vector<TensorSource> canonical_sources(const CheckpointTensor& stored,
                                            const std::string& where);

}  // namespace nibble::checkpoint
