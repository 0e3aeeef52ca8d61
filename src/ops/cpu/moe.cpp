// Router and experts (deepseek-v4.md 4).
#include <algorithm>
#include <cmath>

#include "ops/cpu/cpu_backend.h"

namespace nibble::ops::cpu {
namespace {

// log(1 + e^x) without overflow.
float softplus(float x) {
  return std::max(x, 0.0f) + std::log1p(std::exp(-std::fabs(x)));
}

// chosen[0..k): the ids of the k largest of s + bias, ties to the lower id.
void choose(const float* s, const float* bias, std::int64_t experts, std::int64_t k,
            std::int32_t* chosen) {
  for (std::int64_t j = 0; j < k; ++j) {
    std::int32_t best = -1;
    for (std::int32_t e = 0; e < experts; ++e) {
      if (std::find(chosen, chosen + j, e) != chosen + j) continue;
      if (best < 0 || s[e] + bias[e] > s[best] + bias[best]) best = e;
    }
    chosen[j] = best;
  }
}

}  // namespace

void CpuBackend::route(const RouteArgs& a) {
  const std::int64_t n = a.x.shape[0], d = a.x.shape[1], e = a.gate.rows, k = a.experts.shape[1];
  NIBBLE_CHECK(a.gate.cols == d, "gate of {} columns for {} channels", a.gate.cols, d);
  check_shape(a.experts, {n, k}, "route.experts");
  check_shape(a.weights, {n, k}, "route.weights");
  NIBBLE_CHECK(k <= e, "{} of {} experts", k, e);
  NIBBLE_CHECK(a.bias.empty() != a.hash_table.empty(), "route needs a bias or a hash table");
  float* logits = logits_.get(n * e);
  multiply(a.gate, 1, a.x.f32(), n, false, logits);
  parallel(n, static_cast<double>(e * (20 + k)), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      float* s = logits + t * e;
      for (std::int64_t i = 0; i < e; ++i) s[i] = std::sqrt(softplus(s[i]));
      std::int32_t* chosen = a.experts.i32() + t * k;
      if (!a.hash_table.empty())
        std::copy_n(a.hash_table.i32() + a.ids[static_cast<std::size_t>(t)] * k, k, chosen);
      else
        choose(s, a.bias.f32(), e, k, chosen);
      std::sort(chosen, chosen + k);
      float sum = 0.0f;
      for (std::int64_t j = 0; j < k; ++j) sum += s[chosen[j]];
      for (std::int64_t j = 0; j < k; ++j)
        a.weights.f32()[t * k + j] = s[chosen[j]] / sum * a.scaling;
    }
  });
}

void CpuBackend::routed_experts(const RoutedExpertsArgs& a) {
  const std::int64_t n = a.x.shape[0], d = a.x.shape[1], k = a.experts.shape[1];
  const std::int64_t experts = static_cast<std::int64_t>(a.routed.size());
  const std::int64_t inner = a.shared.w1.rows;
  check_shape(a.experts, {n, k}, "experts.experts");
  check_shape(a.weights, {n, k}, "experts.weights");
  check_shape(a.y, {n, d}, "experts.y");
  const bool release = numerics().release;
  const auto takes_fp8 = [release](const Matrix& w) {
    return release && quant::traits(w.format).fp8_activations;
  };

  // A slot is one expert's work on one token: t * k + j for the routed ones, n * k + t for the
  // shared one, which counts as the last expert. slots_ lists them expert by expert, in order.
  const auto weights_of = [&](std::int64_t e) -> const ExpertWeights& {
    return e < experts ? a.routed[static_cast<std::size_t>(e)] : a.shared;
  };
  const auto token_of = [&](std::int64_t slot) { return slot < n * k ? slot / k : slot - n * k; };
  const std::int64_t slots = n * (k + 1);
  first_slot_.assign(static_cast<std::size_t>(experts + 2), 0);
  for (std::int64_t s = 0; s < n * k; ++s) {
    const std::int32_t e = a.experts.i32()[s];
    NIBBLE_CHECK(e >= 0 && e < experts, "expert {} of {}", e, experts);
    ++first_slot_[static_cast<std::size_t>(e) + 1];
  }
  first_slot_[static_cast<std::size_t>(experts) + 1] = static_cast<std::int32_t>(n);
  for (std::size_t e = 1; e < first_slot_.size(); ++e) first_slot_[e] += first_slot_[e - 1];
  slots_.resize(static_cast<std::size_t>(slots));
  slot_cursor_.assign(first_slot_.begin(), first_slot_.end());
  for (std::int64_t s = 0; s < slots; ++s) {
    const std::int64_t e = s < n * k ? a.experts.i32()[s] : experts;
    slots_[static_cast<std::size_t>(slot_cursor_[static_cast<std::size_t>(e)]++)] =
        static_cast<std::int32_t>(s);
  }

  // Two copies of the input where formats are mixed.
  const auto any_takes_fp8 = [&](const ExpertWeights& w) {
    return takes_fp8(w.w1) || takes_fp8(w.w3);
  };
  const float* const plain = a.x.f32();
  const float* const rounded = rounded_input(
      plain, n, d, any_takes_fp8(a.shared) || std::ranges::any_of(a.routed, any_takes_fp8));

  // Pieces of work: up to kTokenTile slots of one expert.
  tiles_.clear();
  for (std::int64_t e = 0; e <= experts; ++e) {
    const ExpertWeights& w = weights_of(e);
    NIBBLE_CHECK(w.w1.rows == inner && w.w3.rows == inner && w.w2.cols == inner && w.w1.cols == d &&
                     w.w3.cols == d && w.w2.rows == d,
                 "expert {} has another shape than [{}, {}]", e, inner, d);
    const std::int32_t end = first_slot_[static_cast<std::size_t>(e) + 1];
    for (std::int32_t at = first_slot_[static_cast<std::size_t>(e)]; at < end;) {
      const std::int32_t to = std::min<std::int32_t>(end, at + kTokenTile);
      tiles_.push_back({static_cast<std::int32_t>(e), at, to});
      at = to;
    }
  }
  const std::int64_t tiles = static_cast<std::int64_t>(tiles_.size());
  const double column_ns = panel_column_ns(std::min(kTokenTile, (slots + tiles) / (tiles + 1)));

  // hidden[slot] = weight * silu(min(w1 x, limit)) * clamp(w3 x, -limit, limit)
  float* hidden = hidden_.get(slots * inner);
  const std::int64_t inner_panels = panel_count(inner);
  const auto up = [&](std::int64_t begin, std::int64_t end) {
    alignas(64) float gates[kTokenTile * kPanelRows], ups[kTokenTile * kPanelRows];
    const float* inputs[kTokenTile];
    for (std::int64_t item = begin; item < end; ++item) {
      const Tile& tile = tiles_[static_cast<std::size_t>(item / inner_panels)];
      const std::int64_t p = item % inner_panels, count = tile.end - tile.begin;
      const std::int32_t* slot = slots_.data() + tile.begin;
      const ExpertWeights& w = weights_of(tile.group);
      const auto times = [&](const Matrix& matrix, float* out) {
        const float* x = takes_fp8(matrix) ? rounded : plain;
        for (std::int64_t i = 0; i < count; ++i) inputs[i] = x + token_of(slot[i]) * d;
        k_.panel(panel_of(matrix, p), inputs, count, out);
      };
      times(w.w1, gates);
      times(w.w3, ups);
      const std::int64_t lanes = std::min<std::int64_t>(kPanelRows, inner - p * kPanelRows);
      for (std::int64_t i = 0; i < count; ++i) {
        const float weight = slot[i] < n * k ? a.weights.f32()[slot[i]] : 1.0f;
        float* gate = gates + i * kPanelRows;
        k_.swiglu(gate, ups + i * kPanelRows, weight, a.limit, lanes, release);
        std::copy_n(gate, lanes, hidden + slot[i] * inner + p * kPanelRows);
      }
    }
  };
  parallel(tiles * inner_panels, 2.0 * static_cast<double>(d) * column_ns, up);
  if (release)
    parallel(slots, 0.3 * static_cast<double>(inner), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t s = begin; s < end; ++s) {
        const std::int64_t e = s < n * k ? a.experts.i32()[s] : experts;
        if (takes_fp8(weights_of(e).w2)) k_.round_fp8(hidden + s * inner, inner, 128);
      }
    });

  // outputs[slot] = w2 hidden[slot]
  float* outputs = expert_out_.get(slots * d);
  const std::int64_t outer_panels = panel_count(d);
  const auto down = [&](std::int64_t begin, std::int64_t end) {
    alignas(64) float out[kTokenTile * kPanelRows];
    const float* inputs[kTokenTile];
    for (std::int64_t item = begin; item < end; ++item) {
      const Tile& tile = tiles_[static_cast<std::size_t>(item / outer_panels)];
      const std::int64_t p = item % outer_panels, count = tile.end - tile.begin;
      const std::int32_t* slot = slots_.data() + tile.begin;
      for (std::int64_t i = 0; i < count; ++i) inputs[i] = hidden + slot[i] * inner;
      k_.panel(panel_of(weights_of(tile.group).w2, p), inputs, count, out);
      if (release) k_.round_bf16(out, count * kPanelRows);
      const std::int64_t lanes = std::min<std::int64_t>(kPanelRows, d - p * kPanelRows);
      for (std::int64_t i = 0; i < count; ++i)
        std::copy_n(out + i * kPanelRows, lanes, outputs + slot[i] * d + p * kPanelRows);
    }
  };
  parallel(tiles * outer_panels, static_cast<double>(inner) * column_ns, down);

  // y[t]: the slots of the token in order, the shared expert last.
  parallel(n, 0.2 * static_cast<double>(d * (k + 1)), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      float* y = a.y.f32() + t * d;
      std::fill_n(y, d, 0.0f);
      for (std::int64_t j = 0; j < k; ++j) k_.add(outputs + (t * k + j) * d, d, y);
      k_.add(outputs + (n * k + t) * d, d, y);
      if (release) k_.round_bf16(y, d);
    }
  });
}

}  // namespace nibble::ops::cpu
