// Embedding, norm, matrices.
#include <cmath>
#include <cstring>
#include <vector>

#include "ops/ref/ref_backend.h"
#include "ops/ref/rounding.h"

namespace nibble::ops::ref {

void RefBackend::embed(const EmbedArgs& a) {
  const std::int64_t n = static_cast<std::int64_t>(a.ids.size());
  const std::int64_t streams = a.streams.shape[1], d = a.streams.shape[2];
  check_shape(a.streams, {n, streams, d}, "embed.streams");
  std::vector<float> row(static_cast<std::size_t>(d));
  for (std::int64_t t = 0; t < n; ++t) {
    const TokenId id = a.ids[static_cast<std::size_t>(t)];
    NIBBLE_CHECK(id >= 0 && id < a.table.rows, "token id {} of {}", id, a.table.rows);
    decode_matrix_row(a.table, id, row.data());
    for (std::int64_t i = 0; i < streams; ++i)
      std::memcpy(a.streams.f32() + (t * streams + i) * d, row.data(), row.size() * sizeof(float));
  }
}

void RefBackend::rms_norm(const RmsNormArgs& a) {
  const std::int64_t n = a.x.shape[0], d = a.x.shape[1];
  check_shape(a.y, {n, d}, "rms_norm.y");
  check_shape(a.weight, {d}, "rms_norm.weight");
  for (std::int64_t t = 0; t < n; ++t) {
    float* y = a.y.f32() + t * d;
    rms_norm_row(a.x.f32() + t * d, a.weight.f32(), d, a.eps, y);
    if (numerics().release) bf16_round(y, d);
  }
}

void RefBackend::argmax_rows(const ArgmaxRowsArgs& a) {
  const std::int64_t n = a.x.shape[0], width = a.x.shape[1];
  check_shape(a.best, {n}, "argmax.best");
  NIBBLE_CHECK(width > 0, "rows of nothing");
  for (std::int64_t t = 0; t < n; ++t) {
    const float* row = a.x.f32() + t * width;
    std::int32_t best = 0;
    bool nan = false;
    for (std::int32_t i = 0; i < width; ++i) {
      nan |= std::isnan(row[i]);
      if (row[i] > row[best]) best = i;
    }
    a.best.i32()[t] = nan || !std::isfinite(row[best]) ? kNoBest : best;
  }
}

void RefBackend::linear(const LinearArgs& a) {
  const std::int64_t n = a.x.shape[0], rows = a.weight.rows, cols = a.weight.cols;
  check_shape(a.x, {n, cols}, "linear.x");
  check_shape(a.y, {n, rows}, "linear.y");
  std::vector<float> x(a.x.f32(), a.x.f32() + n * cols);
  if (numerics().release && a.quantize_input && quant::traits(a.weight.format).fp8_activations)
    for (std::int64_t t = 0; t < n; ++t) fp8_round_blocks(x.data() + t * cols, cols, 128);
  std::vector<float> w(static_cast<std::size_t>(cols));
  for (std::int64_t r = 0; r < rows; ++r) {
    decode_matrix_row(a.weight, r, w.data());
    for (std::int64_t t = 0; t < n; ++t) {
      const float* xt = x.data() + t * cols;
      float sum = 0.0f;
      for (std::int64_t c = 0; c < cols; ++c) sum += w[static_cast<std::size_t>(c)] * xt[c];
      a.y.f32()[t * rows + r] = numerics().release && a.round_output ? bf16_round(sum) : sum;
    }
  }
}

void RefBackend::grouped_linear(const GroupedLinearArgs& a) {
  const std::int64_t n = a.x.shape[0], rows = a.weight.rows, cols = a.weight.cols;
  NIBBLE_CHECK(a.groups >= 1 && rows % a.groups == 0, "rows {} groups {}", rows, a.groups);
  check_shape(a.x, {n, a.groups * cols}, "grouped_linear.x");
  check_shape(a.y, {n, rows}, "grouped_linear.y");
  const std::int64_t rows_per_group = rows / a.groups;
  std::vector<float> w(static_cast<std::size_t>(cols));
  for (std::int64_t r = 0; r < rows; ++r) {
    decode_matrix_row(a.weight, r, w.data());
    for (std::int64_t t = 0; t < n; ++t) {
      const float* xg = a.x.f32() + (t * a.groups + r / rows_per_group) * cols;
      float sum = 0.0f;
      for (std::int64_t c = 0; c < cols; ++c) sum += w[static_cast<std::size_t>(c)] * xg[c];
      a.y.f32()[t * rows + r] = numerics().release ? bf16_round(sum) : sum;
    }
  }
}

}  // namespace nibble::ops::ref
