// Compressors and the lightning indexer (deepseek-v4.md 3.5 to 3.7).
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "ops/ref/ref_backend.h"
#include "ops/ref/rounding.h"

namespace nibble::ops::ref {
namespace {

// Entry w of one slot from the stored rows: per channel a softmax over the gates of its tokens.
void pool_entry(const CompressArgs& a, std::int64_t slot, std::int64_t w, float* entry) {
  const std::int64_t width = a.entries.width, ratio = a.ratio;
  struct Row {
    const float* value;
    const float* gate;
  };
  std::vector<Row> rows;
  const auto add = [&](std::int64_t position, std::int64_t half) {
    const std::int64_t at = a.state.offset(slot, position) + half * width;
    rows.push_back({a.state.values + at, a.state.gates + at});
  };
  if (a.overlap && w > 0)
    for (std::int64_t j = 0; j < ratio; ++j) add(ratio * (w - 1) + j, 0);
  for (std::int64_t j = 0; j < ratio; ++j) add(ratio * w + j, a.overlap ? 1 : 0);
  for (std::int64_t d = 0; d < width; ++d) {
    float top = -std::numeric_limits<float>::infinity();
    for (const Row& row : rows) top = std::max(top, row.gate[d]);
    float sum = 0.0f, acc = 0.0f;
    for (const Row& row : rows) {
      const float p = std::exp(row.gate[d] - top);
      sum += p;
      acc += p * row.value[d];
    }
    entry[d] = acc / sum;
  }
}

}  // namespace

void RefBackend::compress(const CompressArgs& a) {
  const std::int64_t width = a.entries.width, stored = a.state.width, ratio = a.ratio;
  NIBBLE_CHECK(stored == (a.overlap ? 2 : 1) * width, "state width {} for entries of {}", stored,
               width);
  check_shape(a.values, {a.batch.rows(), stored}, "compress.values");
  check_shape(a.gates, {a.batch.rows(), stored}, "compress.gates");
  check_shape(a.ape, {ratio, stored}, "compress.ape");
  std::vector<float> entry(static_cast<std::size_t>(width));
  for (const Segment& seg : a.batch.segments) {
    NIBBLE_CHECK(a.state.ring >= seg.rows + (a.overlap ? 2 : 1) * ratio,
                 "state ring {} for {} rows", a.state.ring, seg.rows);
    for (std::int64_t i = 0; i < seg.rows; ++i) {
      const std::int64_t position = seg.position + i, from = (seg.first_row + i) * stored;
      const std::int64_t to = a.state.offset(seg.slot, position);
      for (std::int64_t d = 0; d < stored; ++d) {
        a.state.values[to + d] = a.values.f32()[from + d];
        a.state.gates[to + d] =
            a.gates.f32()[from + d] + a.ape.f32()[(position % ratio) * stored + d];
      }
    }
    for (std::int64_t w = seg.position / ratio; ratio * (w + 1) <= seg.position + seg.rows; ++w) {
      NIBBLE_CHECK(w < a.entries.rows_per_slot, "entry {} of {}", w, a.entries.rows_per_slot);
      pool_entry(a, seg.slot, w, entry.data());
      if (numerics().release) bf16_round(entry.data(), width);
      rms_norm_row(entry.data(), a.norm.f32(), width, a.eps, entry.data());
      if (numerics().release) bf16_round(entry.data(), width);
      rope_row(entry.data(), width, ratio * w, a.rope, 1.0f);
      if (numerics().release) bf16_round(entry.data(), width);
      store_row(a.entries, seg.slot, w, entry.data());
    }
  }
}

void RefBackend::index_select(const IndexSelectArgs& a) {
  const std::int64_t heads = a.q.shape[1], width = a.q.shape[2], topk = a.topk;
  check_shape(a.q, {a.batch.rows(), heads, width}, "index.q");
  check_shape(a.weights, {a.batch.rows(), heads}, "index.weights");
  check_shape(a.selected, {a.batch.rows(), topk}, "index.selected");
  std::vector<float> key(static_cast<std::size_t>(width));
  for (const Segment& seg : a.batch.segments)
    for (std::int64_t i = 0; i < seg.rows; ++i) {
      const std::int64_t t = seg.position + i, n = seg.first_row + i, visible = (t + 1) / a.ratio;
      std::int32_t* out = a.selected.i32() + n * topk;
      std::fill(out, out + topk, -1);
      if (visible <= topk) {
        std::iota(out, out + visible, 0);
        continue;
      }
      float* q = a.q.f32() + n * heads * width;
      for (std::int64_t h = 0; h < heads; ++h) {
        rope_row(q + h * width, width, t, a.rope, 1.0f);
        if (numerics().release) bf16_round(q + h * width, width);
        if (a.keys.format == RowFormat::kFp4Index) {
          hadamard(q + h * width, width);
          bf16_round(q + h * width, width);
          fp4_round_blocks(q + h * width, width);
        }
      }
      std::vector<float> score(static_cast<std::size_t>(visible));
      for (std::int64_t w = 0; w < visible; ++w) {
        load_row(a.keys, seg.slot, w, key.data());
        float sum = 0.0f;
        for (std::int64_t h = 0; h < heads; ++h) {
          float dot = 0.0f;
          for (std::int64_t d = 0; d < width; ++d)
            dot += q[h * width + d] * key[static_cast<std::size_t>(d)];
          sum += a.weights.f32()[n * heads + h] * std::max(dot, 0.0f);
        }
        score[static_cast<std::size_t>(w)] = sum;
      }
      std::vector<std::int32_t> order(static_cast<std::size_t>(visible));
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](std::int32_t x, std::int32_t y) {
        return score[static_cast<std::size_t>(x)] > score[static_cast<std::size_t>(y)];
      });
      std::sort(order.begin(), order.begin() + topk);
      std::copy(order.begin(), order.begin() + topk, out);
    }
}

}  // namespace nibble::ops::ref
