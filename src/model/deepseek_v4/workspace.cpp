#include "model/deepseek_v4/workspace.h"

namespace nibble::model {

Workspace::Workspace(ops::Backend& backend, const ModelConfig& c, std::int64_t n) : max_rows(n) {
  using tensor::DType;
  using tensor::Shape;
  const auto f32 = [&](const Shape& shape) { return backend.allocate(DType::kF32, shape); };
  const auto i32 = [&](const Shape& shape) { return backend.allocate(DType::kI32, shape); };
  const std::int64_t d = c.hidden_size, hc = c.hc_mult, hd = c.head_dim, di = c.index_head_dim;
  streams = f32({n, hc, d});
  mtp_streams = f32({n, hc, d});
  other_streams = f32({n, hc, d});
  post = f32({n, hc});
  comb = f32({n, hc, hc});
  x = f32({n, d});
  out = f32({n, d});
  qr = f32({n, c.q_lora_rank});
  q = f32({n, c.num_heads, hd});
  kv = f32({n, hd});
  window_rows = {nullptr, backend.numerics().kv_rows, c.head_dim, 1, n};
  window_rows.data =
      static_cast<std::byte*>(backend.allocate(DType::kU8, {window_rows.bytes()}).data);
  o = f32({n, c.num_heads, hd});
  u = f32({n, static_cast<std::int64_t>(c.o_groups) * c.o_lora_rank});
  comp_values = f32({n, 2 * hd});
  comp_gates = f32({n, 2 * hd});
  index_values = f32({n, 2 * di});
  index_gates = f32({n, 2 * di});
  index_q = f32({n, c.index_heads, di});
  index_weights = f32({n, c.index_heads});
  selected = i32({n, c.index_topk});
  experts = i32({n, c.experts_per_token});
  expert_weights = f32({n, c.experts_per_token});
  embedded = f32({n, d});
  head = f32({n, d});
  logits = f32({n, c.vocab_size});
  best = i32({n});
}

}  // namespace nibble::model
