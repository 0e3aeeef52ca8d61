// Router and experts (deepseek-v4.md 4).
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "ops/ref/ref_backend.h"
#include "ops/ref/rounding.h"

namespace nibble::ops::ref {
namespace {

// log(1 + e^x) without overflow.
float softplus(float x) {
  return std::max(x, 0.0f) + std::log1p(std::exp(-std::fabs(x)));
}

std::vector<float> multiply(const Matrix& w, const std::vector<float>& x) {
  std::vector<float> y(static_cast<std::size_t>(w.rows)), row(static_cast<std::size_t>(w.cols));
  for (std::int64_t r = 0; r < w.rows; ++r) {
    decode_matrix_row(w, r, row.data());
    float sum = 0.0f;
    for (std::size_t c = 0; c < row.size(); ++c) sum += row[c] * x[c];
    y[static_cast<std::size_t>(r)] = sum;
  }
  return y;
}

// The input of w, rounded to FP8 where release numerics and w's format ask for it.
std::vector<float> input_of(const Matrix& w, std::vector<float> x, bool release) {
  if (release && quant::traits(w.format).fp8_activations)
    fp8_round_blocks(x.data(), static_cast<std::int64_t>(x.size()), 128);
  return x;
}

// w2 (weight * silu(min(w1 x, limit)) * clamp(w3 x, -limit, limit))
std::vector<float> expert(const ExpertWeights& e, const std::vector<float>& x, float limit,
                          float weight, bool release) {
  std::vector<float> gate = multiply(e.w1, input_of(e.w1, x, release));
  const std::vector<float> up = multiply(e.w3, input_of(e.w3, x, release));
  for (std::size_t i = 0; i < gate.size(); ++i) {
    const float g = std::min(release ? bf16_round(gate[i]) : gate[i], limit);
    const float u = std::clamp(release ? bf16_round(up[i]) : up[i], -limit, limit);
    gate[i] = weight * (g / (1.0f + std::exp(-g)) * u);
    if (release) gate[i] = bf16_round(gate[i]);
  }
  std::vector<float> y = multiply(e.w2, input_of(e.w2, std::move(gate), release));
  if (release) bf16_round(y.data(), static_cast<std::int64_t>(y.size()));
  return y;
}

}  // namespace

void RefBackend::route(const RouteArgs& a) {
  const std::int64_t n = a.x.shape[0], d = a.x.shape[1], e = a.gate.rows, k = a.experts.shape[1];
  check_shape(a.experts, {n, k}, "route.experts");
  check_shape(a.weights, {n, k}, "route.weights");
  NIBBLE_CHECK(a.bias.empty() != a.hash_table.empty(), "route needs a bias or a hash table");
  for (std::int64_t t = 0; t < n; ++t) {
    std::vector<float> s =
        multiply(a.gate, std::vector<float>(a.x.f32() + t * d, a.x.f32() + (t + 1) * d));
    for (float& value : s) value = std::sqrt(softplus(value));
    std::int32_t* chosen = a.experts.i32() + t * k;
    if (!a.hash_table.empty()) {
      std::copy_n(a.hash_table.i32() + a.ids[static_cast<std::size_t>(t)] * k, k, chosen);
    } else {
      std::vector<std::int32_t> order(static_cast<std::size_t>(e));
      std::iota(order.begin(), order.end(), 0);
      const auto biased = [&](std::int32_t i) {
        return s[static_cast<std::size_t>(i)] + a.bias.f32()[i];
      };
      std::stable_sort(order.begin(), order.end(),
                       [&](std::int32_t x, std::int32_t y) { return biased(x) > biased(y); });
      std::copy_n(order.begin(), k, chosen);
    }
    std::sort(chosen, chosen + k);
    float sum = 0.0f;
    for (std::int64_t j = 0; j < k; ++j) sum += s[static_cast<std::size_t>(chosen[j])];
    for (std::int64_t j = 0; j < k; ++j)
      a.weights.f32()[t * k + j] = s[static_cast<std::size_t>(chosen[j])] / sum * a.scaling;
  }
}

void RefBackend::routed_experts(const RoutedExpertsArgs& a) {
  const std::int64_t n = a.x.shape[0], d = a.x.shape[1], k = a.experts.shape[1];
  check_shape(a.weights, {n, k}, "experts.weights");
  check_shape(a.y, {n, d}, "experts.y");
  const bool release = numerics().release;
  for (std::int64_t t = 0; t < n; ++t) {
    const std::vector<float> x(a.x.f32() + t * d, a.x.f32() + (t + 1) * d);
    std::vector<float> sum(static_cast<std::size_t>(d), 0.0f);
    const auto add = [&](const std::vector<float>& y) {
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += y[i];
    };
    for (std::int64_t j = 0; j < k; ++j) {
      const std::int32_t e = a.experts.i32()[t * k + j];
      NIBBLE_CHECK(e >= 0 && e < static_cast<std::int64_t>(a.routed.size()), "expert {}", e);
      add(expert(a.routed[static_cast<std::size_t>(e)], x, a.limit, a.weights.f32()[t * k + j],
                 release));
    }
    add(expert(a.shared, x, a.limit, 1.0f, release));
    for (std::int64_t i = 0; i < d; ++i)
      a.y.f32()[t * d + i] =
          release ? bf16_round(sum[static_cast<std::size_t>(i)]) : sum[static_cast<std::size_t>(i)];
  }
}

}  // namespace nibble::ops::ref
