// Router and experts: contracts checked, then the launch.
#include <algorithm>

#include "base/check.h"
#include "ops/cuda/cuda_backend.h"
#include "ops/cuda/kernels.h"

namespace nibble::ops::cuda {
void CudaBackend::route(const RouteArgs& a) {
  const std::int64_t n = a.x.shape[0], d = a.x.shape[1], e = a.gate.rows, k = a.experts.shape[1];
  NIBBLE_CHECK(a.gate.cols == d, "gate of {} columns for {} channels", a.gate.cols, d);
  check_shape(a.experts, {n, k}, "route.experts");
  check_shape(a.weights, {n, k}, "route.weights");
  NIBBLE_CHECK(a.bias.empty() != a.hash_table.empty(), "route needs a bias or a hash table");
  NIBBLE_CHECK(k <= e && k <= kMaxChosen, "{} of {} experts", k, e);
  NIBBLE_CHECK((a.ids.empty() && a.hash_table.empty()) || std::ssize(a.ids) == n,
               "{} ids for {} rows", a.ids.size(), n);
  if (n == 0) return;
  const bool hash = !a.hash_table.empty();
  Route route{a.x.f32(),
              nullptr,
              a.gate,
              hash ? nullptr : a.bias.f32(),
              hash ? a.hash_table.i32() : nullptr,
              a.ids.empty() ? nullptr : copies_.get(a.ids),
              a.scaling,
              a.experts.i32(),
              a.weights.f32(),
              static_cast<int>(k)};
  if (numerics().release && streams_linear(a.gate, 1)) {
    float* logits = logits_.get<float>(n * e);
    route.logits = logits;
    if (chooses_in_registers(route)) {
      stream_linear(a.x.f32(), n, a.gate, 1, logits, false, false);
      launch_choose(route, n, stream_);
      return;
    }
  }
  launch_route(route, n, stream_);
}

void CudaBackend::routed_experts(const RoutedExpertsArgs& a) {
  const std::int64_t n = a.x.shape[0], d = a.x.shape[1], k = a.experts.shape[1],
                     inner = a.shared.w1.rows;
  check_shape(a.experts, {n, k}, "experts.experts");
  check_shape(a.weights, {n, k}, "experts.weights");
  check_shape(a.y, {n, d}, "experts.y");
  NIBBLE_CHECK(a.shared.w1.cols == d && a.shared.w2.rows == d && a.shared.w2.cols == inner,
               "shared expert {} x {} for {} channels", a.shared.w1.rows, a.shared.w1.cols, d);
  for (const ExpertWeights& e : a.routed)
    NIBBLE_CHECK(e.w1.rows == inner && e.w3.rows == inner && e.w2.cols == inner,
                 "experts of {} and {} channels", e.w1.rows, inner);
  if (n == 0) return;
  const bool release = numerics().release;
  const std::int64_t slots = n * (k + 1);
  const ExpertTable& table = expert_table(a.routed);
  Experts experts{a.x.f32(),
                  nullptr,
                  a.experts.i32(),
                  a.weights.f32(),
                  table.device,
                  {a.shared.w1, a.shared.w3, a.shared.w2},
                  nullptr,
                  nullptr,
                  a.y.f32(),
                  d,
                  inner,
                  a.limit,
                  static_cast<int>(k),
                  static_cast<int>(a.routed.size()),
                  release};
  const quant::Format routed = a.routed[0].w1.format;
  if (table.one_format_in_tiles && in_tiles(a.shared) && streams_experts(experts, routed)) {
    launch_streamed_experts(experts, routed, n,
                            expert_workspace_.get<std::byte>(expert_workspace_bytes(experts, n)),
                            stream_);
    return;
  }
  if (release) experts.x_fp8 = fp8_rounded(a.x.f32(), n, d);
  experts.hidden = hidden_.get<float>(slots * inner);
  experts.parts = parts_.get<float>(slots * d);
  launch_experts(experts, n, stream_);
}

}  // namespace nibble::ops::cuda
