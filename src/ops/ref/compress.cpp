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

// Entry w of one sequence: per channel a softmax over the gates of its tokens. Rows of the step come from the batch, their
// gates with ape added already, earlier ones from the ring.
void pool_entry(const CompressArgs& a, const Segment& seg, std::int64_t w, float* entry) {
  const std::int64_t width = a.entries.width, ratio = a.ratio;
  struct Row {
    const float* value;
    const float* gate;
  };
  std::vector<Row> rows;
  const auto add = [&](std::int64_t position, std::int64_t half) {
    if (position >= seg.position) {
      const std::int64_t at =
          (seg.first_row + position - seg.position) * a.state.width + half * width;
      rows.push_back({a.values.f32() + at, a.gates.f32() + at});
    } else {
      const std::int64_t at = a.state.offset(seg.slot, position) + half * width;
      rows.push_back({a.state.values + at, a.state.gates + at});
    }
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
  NIBBLE_CHECK(a.state.ring >= (a.overlap ? 2 : 1) * ratio + kDraftSlack,
               "state ring {} for ratio {}", a.state.ring, ratio);
  check_pages(a.entries, a.batch, a.ratio);
  std::vector<float> entry(static_cast<std::size_t>(width));
  for (const Segment& seg : a.batch.segments) {
    for (std::int64_t i = 0; i < seg.rows; ++i)
      for (std::int64_t d = 0; d < stored; ++d)
        a.gates.f32()[(seg.first_row + i) * stored + d] +=
            a.ape.f32()[(seg.position + i) % ratio * stored + d];
    for (std::int64_t w = seg.position / ratio; ratio * (w + 1) <= seg.position + seg.rows; ++w) {
      pool_entry(a, seg, w, entry.data());
      if (numerics().release) bf16_round(entry.data(), width);
      rms_norm_row(entry.data(), a.norm.f32(), width, a.eps, entry.data());
      if (numerics().release) bf16_round(entry.data(), width);
      rope_row(entry.data(), width, ratio * w, a.rope, 1.0f);
      if (numerics().release) bf16_round(entry.data(), width);
      store_row(a.entries.format, a.entries.width, entry.data(),
                a.entries.entry(a.batch.pages_of(seg), w));
    }
    // Only now: until here the ring holds what the first entries needed.
    for (std::int64_t i = std::max<std::int64_t>(0, seg.rows - a.state.ring); i < seg.rows; ++i) {
      const std::int64_t from = (seg.first_row + i) * stored;
      const std::int64_t to = a.state.offset(seg.slot, seg.position + i);
      std::copy_n(a.values.f32() + from, stored, a.state.values + to);
      std::copy_n(a.gates.f32() + from, stored, a.state.gates + to);
    }
  }
}

void RefBackend::index_select(const IndexSelectArgs& a) {
  const std::int64_t heads = a.q.shape[1], width = a.q.shape[2], topk = a.topk;
  check_shape(a.q, {a.batch.rows(), heads, width}, "index.q");
  check_shape(a.weights, {a.batch.rows(), heads}, "index.weights");
  check_shape(a.selected, {a.batch.rows(), topk}, "index.selected");
  check_pages(a.keys, a.batch, a.ratio);
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
        load_row(a.keys.format, a.keys.width, a.keys.entry(a.batch.pages_of(seg), w), key.data());
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
