// Queries, window rows, sparse attention (deepseek-v4.md 3.1 to 3.4).
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "ops/ref/ref_backend.h"
#include "ops/ref/rounding.h"

namespace nibble::ops::ref {

void RefBackend::query_norm_rope(const QueryNormRopeArgs& a) {
  const std::int64_t heads = a.q.shape[1], hd = a.q.shape[2];
  check_shape(a.q, {a.batch.rows(), heads, hd}, "query.q");
  for (const Segment& seg : a.batch.segments)
    for (std::int64_t i = 0; i < seg.rows; ++i)
      for (std::int64_t h = 0; h < heads; ++h) {
        float* q = a.q.f32() + ((seg.first_row + i) * heads + h) * hd;
        query_norm_row(q, hd, a.eps, numerics().release);
        rope_row(q, hd, seg.position + i, a.rope, 1.0f);
        if (numerics().release) bf16_round(q, hd);
      }
}

void RefBackend::window_insert(const WindowInsertArgs& a) {
  const RowFormat format = a.window.format;
  const int hd = a.window.width;
  NIBBLE_CHECK(a.step.rows_per_slot >= a.batch.rows() && a.step.width == hd, "{} step rows of {}",
               a.step.rows_per_slot, a.step.width);
  check_shape(a.kv, {a.batch.rows(), hd}, "window.kv");
  check_shape(a.norm, {hd}, "window.norm");
  std::vector<float> row(static_cast<std::size_t>(hd));
  for (const Segment& seg : a.batch.segments)
    for (std::int64_t i = 0; i < seg.rows; ++i) {
      const std::int64_t position = seg.position + i;
      rms_norm_row(a.kv.f32() + (seg.first_row + i) * hd, a.norm.f32(), hd, a.eps, row.data());
      if (numerics().release) bf16_round(row.data(), hd);
      rope_row(row.data(), hd, position, a.rope, 1.0f);
      if (numerics().release) bf16_round(row.data(), hd);
      store_row(format, hd, row.data(), a.step.row(0, seg.first_row + i));
      if (fits_ring(seg)) store_row(format, hd, row.data(), a.window.row(seg.slot, position));
    }
}

void RefBackend::sparse_attention(const SparseAttentionArgs& a) {
  const std::int64_t heads = a.q.shape[1], hd = a.q.shape[2];
  const RowPool& window = a.window_rows;
  check_shape(a.q, {a.batch.rows(), heads, hd}, "attention.q");
  check_shape(a.o, {a.batch.rows(), heads, hd}, "attention.o");
  check_shape(a.sink, {heads}, "attention.sink");
  NIBBLE_CHECK(window.rows_per_slot >= a.window + kDraftSlack && window.width == hd,
               "window of {} in a ring of {} rows", a.window, window.rows_per_slot);
  if (!a.entries.empty()) check_pages(a.entries, a.batch, a.ratio);
  NIBBLE_CHECK(!a.whole_segment || a.entries.empty(), "a block of ratio {}", a.ratio);
  const bool release = numerics().release;
  for (const Segment& seg : a.batch.segments)
    for (std::int64_t i = 0; i < seg.rows; ++i) {
      const std::int64_t t = seg.position + i, n = seg.first_row + i;
      // The keys of this query as fp32 rows, in the canonical order.
      std::vector<float> keys;
      const auto add = [&](RowFormat format, const std::byte* row) {
        keys.resize(keys.size() + static_cast<std::size_t>(hd));
        load_row(format, static_cast<int>(hd), row, keys.data() + keys.size() - hd);
      };
      const auto add_entry = [&](std::int64_t w) {
        NIBBLE_CHECK(w < (t + 1) / a.ratio, "entry {} at position {}", w, t);
        add(a.entries.format, a.entries.entry(a.batch.pages_of(seg), w));
      };
      for (std::int64_t p = a.first_seen(seg, t); p <= a.last_seen(seg, t); ++p)
        add(window.format, a.window_row(seg, p));
      if (!a.selected.empty()) {
        const std::int64_t topk = a.selected.shape[1];
        for (std::int64_t j = 0; j < topk && a.selected.i32()[n * topk + j] >= 0; ++j)
          add_entry(a.selected.i32()[n * topk + j]);
      } else if (!a.entries.empty()) {
        for (std::int64_t w = 0; w < (t + 1) / a.ratio; ++w) add_entry(w);
      }
      const std::int64_t count = static_cast<std::int64_t>(keys.size()) / hd;
      std::vector<float> p(static_cast<std::size_t>(count));
      for (std::int64_t h = 0; h < heads; ++h) {
        const float* q = a.q.f32() + (n * heads + h) * hd;
        const float sink = a.sink.f32()[h];
        float top = -std::numeric_limits<float>::infinity();
        for (std::int64_t j = 0; j < count; ++j) {
          float dot = 0.0f;
          for (std::int64_t d = 0; d < hd; ++d)
            dot += q[d] * keys[static_cast<std::size_t>(j * hd + d)];
          p[static_cast<std::size_t>(j)] = dot * a.scale;
          top = std::max(top, dot * a.scale);
        }
        float sum = std::exp(sink - top);
        for (float& s : p) sum += s = std::exp(s - top);
        float* o = a.o.f32() + (n * heads + h) * hd;
        std::fill(o, o + hd, 0.0f);
        for (std::int64_t j = 0; j < count; ++j) {
          const float weight =
              release ? bf16_round(p[static_cast<std::size_t>(j)]) : p[static_cast<std::size_t>(j)];
          for (std::int64_t d = 0; d < hd; ++d)
            o[d] += weight * keys[static_cast<std::size_t>(j * hd + d)];
        }
        for (std::int64_t d = 0; d < hd; ++d) o[d] /= sum;
        if (release) bf16_round(o, hd);
        rope_row(o, hd, t, a.rope, -1.0f);
        if (release) bf16_round(o, hd);
      }
    }
}

}  // namespace nibble::ops::ref
