// Embedding, norm, matrices.
#include <algorithm>
#include <cstring>

#include "ops/cpu/cpu_backend.h"

namespace nibble::ops::cpu {

void CpuBackend::embed(const EmbedArgs& a) {
  const std::int64_t n = static_cast<std::int64_t>(a.ids.size());
  const std::int64_t streams = a.streams.shape[1], d = a.streams.shape[2];
  check_shape(a.streams, {n, streams, d}, "embed.streams");
  NIBBLE_CHECK(a.table.cols == d, "embedding of {} channels for {}", a.table.cols, d);
  for (const TokenId id : a.ids)
    NIBBLE_CHECK(id >= 0 && id < a.table.rows, "token id {} of {}", id, a.table.rows);
  float* out = a.streams.f32();
  parallel(n, 2.0 * static_cast<double>(d), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      float* first = out + t * streams * d;
      read_packed_row(a.table, a.ids[static_cast<std::size_t>(t)], first);
      for (std::int64_t i = 1; i < streams; ++i) std::copy_n(first, d, first + i * d);
    }
  });
}

void CpuBackend::rms_norm(const RmsNormArgs& a) {
  const std::int64_t n = a.x.shape[0], d = a.x.shape[1];
  check_shape(a.y, {n, d}, "rms_norm.y");
  check_shape(a.weight, {d}, "rms_norm.weight");
  const float *x = a.x.f32(), *weight = a.weight.f32();
  float* y = a.y.f32();
  parallel(n, 0.4 * static_cast<double>(d), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) norm_row(x + t * d, weight, d, a.eps, y + t * d);
  });
}

void CpuBackend::argmax_rows(const ArgmaxRowsArgs& a) {
  const std::int64_t n = a.x.shape[0], width = a.x.shape[1];
  check_shape(a.best, {n}, "argmax.best");
  NIBBLE_CHECK(width > 0, "rows of nothing");
  const float* x = a.x.f32();
  std::int32_t* best = a.best.i32();
  parallel(n, 0.2 * static_cast<double>(width), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) best[t] = k_.argmax(x + t * width, width);
  });
}

void CpuBackend::linear(const LinearArgs& a) {
  const std::int64_t n = a.x.shape[0], rows = a.weight.rows, cols = a.weight.cols;
  check_shape(a.x, {n, cols}, "linear.x");
  check_shape(a.y, {n, rows}, "linear.y");
  const float* x = rounded_input(
      a.x.f32(), n, cols, a.quantize_input && quant::traits(a.weight.format).fp8_activations);
  multiply(a.weight, 1, x, n, numerics().release && a.round_output, a.y.f32());
}

void CpuBackend::grouped_linear(const GroupedLinearArgs& a) {
  const std::int64_t n = a.x.shape[0], rows = a.weight.rows, cols = a.weight.cols;
  NIBBLE_CHECK(a.groups >= 1 && rows % a.groups == 0, "rows {} groups {}", rows, a.groups);
  check_shape(a.x, {n, a.groups * cols}, "grouped_linear.x");
  check_shape(a.y, {n, rows}, "grouped_linear.y");
  multiply(a.weight, a.groups, a.x.f32(), n, numerics().release, a.y.f32());
}

void CpuBackend::multiply(const Matrix& weight, int groups, const float* x, std::int64_t n,
                          bool round, float* y) {
  const std::int64_t rows = weight.rows, cols = weight.cols, stride = groups * cols;
  const std::int64_t rows_per_group = rows / groups;
  const std::int64_t panels = panel_count(rows), tiles = (n + kTokenTile - 1) / kTokenTile;
  const double item_ns = static_cast<double>(cols) * panel_column_ns(std::min(n, kTokenTile));
  // Tokens in the outer loop: a tile's inputs stay in the cache while all panels pass.
  parallel(panels * tiles, item_ns, [&](std::int64_t begin, std::int64_t end) {
    alignas(64) float out[kTokenTile * kPanelRows];
    const float* inputs[kTokenTile];
    for (std::int64_t item = begin; item < end; ++item) {
      const std::int64_t p = item % panels, first = item / panels * kTokenTile;
      const std::int64_t tokens = std::min(kTokenTile, n - first);
      const Panel panel = panel_of(weight, p);
      const std::int64_t row_end = std::min(rows, (p + 1) * kPanelRows);
      // A panel that reaches into several groups is multiplied with each group's input.
      for (std::int64_t row = p * kPanelRows; row < row_end;) {
        const std::int64_t group = row / rows_per_group;
        const std::int64_t to = std::min(row_end, (group + 1) * rows_per_group);
        for (std::int64_t t = 0; t < tokens; ++t)
          inputs[t] = x + (first + t) * stride + group * cols;
        k_.panel(panel, inputs, tokens, out);
        if (round) k_.round_bf16(out, tokens * kPanelRows);
        for (std::int64_t t = 0; t < tokens; ++t)
          std::copy_n(out + t * kPanelRows + row - p * kPanelRows, to - row,
                      y + (first + t) * rows + row);
        row = to;
      }
    }
  });
}

}  // namespace nibble::ops::cpu
