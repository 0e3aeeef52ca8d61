// Queries, window rows, sparse attention (deepseek-v4.md 3.1 to 3.4).
#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/cpu/cpu_backend.h"

namespace nibble::ops::cpu {
namespace {

// Queries of one sequence that a thread takes together: they share the decoded window rows.
constexpr std::int64_t kQueryTile = 8;
// Decoded rows lie a cache line further apart than their width, or every row would start in the same
// few cache sets.
constexpr std::int64_t kRowPadding = 16;
// Channels of one piece when the threads share a query.
constexpr std::int64_t kChannelPiece = 64;

// About what a key costs one thread, for one query with all its heads.
double key_ns(std::int64_t heads, std::int64_t hd) {
  return static_cast<double>(hd) * (0.1 + 0.04 * static_cast<double>(heads));
}

// What a query sees, and where it lies.
struct Visible {
  std::int64_t first = 0;                  // window rows from this position on
  std::int64_t window = 0;                 // their number
  std::int64_t entries = 0;                // compressed entries
  const std::int32_t* selected = nullptr;  // their ids; null: 0 .. entries - 1

  std::int64_t count() const { return window + entries; }
  std::int64_t entry(std::int64_t j) const { return selected ? selected[j] : j; }
};

// Row i of the segment.
Visible visible_to(const SparseAttentionArgs& a, const Segment& seg, std::int64_t i) {
  const std::int64_t n = seg.first_row + i, t = seg.position + i;
  Visible v;
  v.first = a.first_seen(seg, t);
  v.window = a.last_seen(seg, t) - v.first + 1;
  if (!a.selected.empty()) {
    const std::int64_t topk = a.selected.shape[1];
    v.selected = a.selected.i32() + n * topk;
    while (v.entries < topk && v.selected[v.entries] >= 0) ++v.entries;
    for (std::int64_t j = 0; j < v.entries; ++j)
      NIBBLE_CHECK(v.selected[j] < (t + 1) / a.ratio, "entry {} at position {}", v.selected[j], t);
  } else if (!a.entries.empty()) {
    v.entries = (t + 1) / a.ratio;
  }
  return v;
}

// A stored row as floats: in place when it is stored so, else decoded to `space`.
const float* row_floats(const Kernels& k, RowFormat format, int width, const std::byte* stored,
                        float* space) {
  if (format == RowFormat::kF32) return reinterpret_cast<const float*>(stored);
  k.load_row(format, width, stored, space);
  return space;
}

const float* window_floats(const Kernels& k, const SparseAttentionArgs& a, const Segment& seg,
                           std::int64_t position, float* space) {
  return row_floats(k, a.window_rows.format, a.window_rows.width, a.window_row(seg, position),
                    space);
}

const float* entry_floats(const Kernels& k, const SparseAttentionArgs& a, const Segment& seg,
                          std::int64_t w, float* space) {
  return row_floats(k, a.entries.format, a.entries.width, a.entries.entry(a.batch.pages_of(seg), w),
                    space);
}

void rotate_tail(const Kernels& k, float* x, std::int64_t n, const float* cos, const float* sin,
                 int pairs, bool release) {
  float* tail = x + n - 2L * pairs;
  k.rotate(tail, cos, sin, 2L * pairs);
  if (release) k.round_bf16(tail, 2L * pairs);
}

// p[0..count) = exp(score * scale - top), top being the largest of the scores; returns the softmax's
// denominator, with the sink. Release: p is rounded to bf16 after it was added.
float soften(const Kernels& k, float* p, std::int64_t count, float scale, float sink,
             bool release) {
  k.scale(p, scale, nullptr, count, p);
  const float top = k.max(p, count, -std::numeric_limits<float>::infinity());
  const float sum = std::exp(sink - top) + k.exp_sum(p, count, top);
  if (release) k.round_bf16(p, count);
  return sum;
}

// o /= sum, rotated back; release: rounded before and after.
void finish_head(const Kernels& k, float* o, std::int64_t hd, float sum, const RopeRow& angles,
                 int pairs, bool release) {
  k.divide(o, sum, hd);
  if (release) k.round_bf16(o, hd);
  rotate_tail(k, o, hd, angles.cos, angles.inverse_sin, pairs, release);
}

}  // namespace

void CpuBackend::query_norm_rope(const QueryNormRopeArgs& a) {
  const std::int64_t n = a.batch.rows(), heads = a.q.shape[1], hd = a.q.shape[2];
  check_shape(a.q, {n, heads, hd}, "query.q");
  const RopeAngles::Rows angles = angles_.of(a.rope, a.batch);
  parallel(n * heads, 0.5 * static_cast<double>(hd), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      float* q = a.q.f32() + i * hd;
      query_norm_row(q, hd, a.eps);
      const RopeRow row = angles.row(i / heads);
      rotate_tail(k_, q, hd, row.cos, row.sin, angles.pairs, numerics().release);
    }
  });
}

void CpuBackend::window_insert(const WindowInsertArgs& a) {
  const std::int64_t n = a.batch.rows(), hd = a.window.width;
  check_shape(a.kv, {n, hd}, "window.kv");
  check_shape(a.norm, {hd}, "window.norm");
  NIBBLE_CHECK(a.step.rows_per_slot >= n && a.step.width == hd, "{} step rows of {}",
               a.step.rows_per_slot, a.step.width);
  for (const Segment& seg : a.batch.segments)
    NIBBLE_CHECK(seg.slot < a.window.slots, "slot {} of {}", seg.slot, a.window.slots);
  const RopeAngles::Rows angles = angles_.of(a.rope, a.batch);
  for_each_row(a.batch, 1.5 * static_cast<double>(hd), [&](const Segment& seg, std::int64_t i) {
    thread_local Scratch<float> space;
    float* row = space.get(hd);
    const std::int64_t r = seg.first_row + i;
    norm_row(a.kv.f32() + r * hd, a.norm.f32(), hd, a.eps, row);
    const RopeRow angle = angles.row(r);
    rotate_tail(k_, row, hd, angle.cos, angle.sin, angles.pairs, numerics().release);
    std::byte* stored = a.step.row(0, r);
    k_.store_row(a.step.format, a.step.width, row, stored);
    if (fits_ring(seg))
      std::copy_n(stored, row_bytes(a.step.format, a.step.width),
                  a.window.row(seg.slot, seg.position + i));
  });
}

void CpuBackend::sparse_attention(const SparseAttentionArgs& a) {
  const std::int64_t n = a.batch.rows(), heads = a.q.shape[1], hd = a.q.shape[2];
  check_shape(a.q, {n, heads, hd}, "attention.q");
  check_shape(a.o, {n, heads, hd}, "attention.o");
  check_shape(a.sink, {heads}, "attention.sink");
  NIBBLE_CHECK(a.window >= 1 && a.window_rows.width == hd &&
                   a.window_rows.rows_per_slot >= a.window + kDraftSlack,
               "window of {} in a ring of {} rows of width {}", a.window,
               a.window_rows.rows_per_slot, a.window_rows.width);
  NIBBLE_CHECK(a.entries.empty() || (a.ratio >= 1 && a.entries.width == hd),
               "entries of ratio {} and width {}", a.ratio, a.entries.width);
  NIBBLE_CHECK(!a.whole_segment || a.entries.empty(), "a block of ratio {}", a.ratio);
  if (!a.selected.empty()) check_shape(a.selected, {n, a.selected.shape[1]}, "attention.selected");
  if (!a.entries.empty()) check_pages(a.entries, a.batch, a.ratio);
  if (n >= pool_.size()) {
    attend_apart(a);
  } else {
    for (const Segment& seg : a.batch.segments)
      for (std::int64_t i = 0; i < seg.rows; ++i) attend_together(a, seg, i);
  }
}

// One query after the other, each shared out: the keys first, then the channels of the output.
void CpuBackend::attend_together(const SparseAttentionArgs& a, const Segment& seg, std::int64_t i) {
  const std::int64_t heads = a.q.shape[1], hd = a.q.shape[2], stride = hd + kRowPadding;
  const std::int64_t n = seg.first_row + i;
  const bool release = numerics().release;
  const RopeAngles::Rows angles = angles_.of(a.rope, a.batch);
  const Visible v = visible_to(a, seg, i);
  const std::int64_t count = v.count();
  float* space = keys_.get(count * stride);
  float* p = scores_.get(heads * count + heads);
  float* sums = p + heads * count;
  row_pointers_.resize(static_cast<std::size_t>(count));
  const float** rows = row_pointers_.data();
  const float* q = a.q.f32() + n * heads * hd;
  float* o = a.o.f32() + n * heads * hd;
  parallel(count, key_ns(heads, hd), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t j = begin; j < end; ++j) {
      float* to = space + j * stride;
      rows[j] = j < v.window ? window_floats(k_, a, seg, v.first + j, to)
                             : entry_floats(k_, a, seg, v.entry(j - v.window), to);
      k_.dots(q, hd, heads, rows[j], hd, p + j, count);
    }
  });
  parallel(heads, 2.5 * static_cast<double>(count), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t h = begin; h < end; ++h)
      sums[h] = soften(k_, p + h * count, count, a.scale, a.sink.f32()[h], release);
  });
  const std::int64_t pieces = (hd + kChannelPiece - 1) / kChannelPiece;
  const double piece_ns = 0.04 * static_cast<double>(heads * kChannelPiece * count);
  parallel(pieces, piece_ns, [&](std::int64_t begin, std::int64_t end) {
    k_.weighted_sum(rows, count, p, count, heads, begin * kChannelPiece,
                    std::min(hd, end * kChannelPiece), o, hd);
  });
  parallel(heads, 0.3 * static_cast<double>(hd), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t h = begin; h < end; ++h)
      finish_head(k_, o + h * hd, hd, sums[h], angles.row(n), angles.pairs, release);
  });
}

// A tile of queries a thread.
void CpuBackend::attend_apart(const SparseAttentionArgs& a) {
  const std::int64_t heads = a.q.shape[1], hd = a.q.shape[2], stride = hd + kRowPadding;
  const bool release = numerics().release;
  const RopeAngles::Rows angles = angles_.of(a.rope, a.batch);
  tiles_.clear();
  for (std::size_t s = 0; s < a.batch.segments.size(); ++s)
    for (std::int32_t i = 0; i < a.batch.segments[s].rows; i += kQueryTile)
      tiles_.push_back({static_cast<std::int32_t>(s), i,
                        std::min<std::int32_t>(a.batch.segments[s].rows, i + kQueryTile)});
  const double tile_ns = static_cast<double>(kQueryTile * a.window) * key_ns(heads, hd);
  parallel(
      static_cast<std::int64_t>(tiles_.size()), tile_ns, [&](std::int64_t begin, std::int64_t end) {
        thread_local Scratch<float> window_space, entry_space, score_space;
        thread_local std::vector<const float*> window_rows, rows;
        for (std::int64_t item = begin; item < end; ++item) {
          const Tile& tile = tiles_[static_cast<std::size_t>(item)];
          const Segment& seg = a.batch.segments[static_cast<std::size_t>(tile.group)];
          const std::int64_t t_first = seg.position + tile.begin,
                             t_last = seg.position + tile.end - 1;
          // Rows that the tile's queries share: their windows, and all entries when none are selected.
          const std::int64_t first = a.first_seen(seg, t_first);
          const std::int64_t shared_window = a.last_seen(seg, t_last) - first + 1;
          const std::int64_t shared_entries =
              a.entries.empty() || !a.selected.empty() ? 0 : (t_last + 1) / a.ratio;
          const std::int64_t shared = shared_window + shared_entries;
          float* space = window_space.get(shared * stride);
          window_rows.resize(static_cast<std::size_t>(shared));
          for (std::int64_t j = 0; j < shared; ++j) {
            float* to = space + j * stride;
            window_rows[static_cast<std::size_t>(j)] =
                j < shared_window ? window_floats(k_, a, seg, first + j, to)
                                  : entry_floats(k_, a, seg, j - shared_window, to);
          }
          for (std::int64_t i = tile.begin; i < tile.end; ++i) {
            const std::int64_t n = seg.first_row + i;
            const Visible v = visible_to(a, seg, i);
            const std::int64_t count = v.count();
            rows.resize(static_cast<std::size_t>(count));
            std::copy_n(window_rows.data() + (v.first - first), v.window, rows.data());
            if (v.selected) {
              float* own = entry_space.get(v.entries * stride);
              for (std::int64_t j = 0; j < v.entries; ++j)
                rows[static_cast<std::size_t>(v.window + j)] =
                    entry_floats(k_, a, seg, v.selected[j], own + j * stride);
            } else {
              std::copy_n(window_rows.data() + shared_window, v.entries, rows.data() + v.window);
            }
            const float* q = a.q.f32() + n * heads * hd;
            float* o = a.o.f32() + n * heads * hd;
            float* p = score_space.get(heads * count + heads);
            float* sums = p + heads * count;
            for (std::int64_t j = 0; j < count; ++j)
              k_.dots(q, hd, heads, rows[static_cast<std::size_t>(j)], hd, p + j, count);
            for (std::int64_t h = 0; h < heads; ++h)
              sums[h] = soften(k_, p + h * count, count, a.scale, a.sink.f32()[h], release);
            k_.weighted_sum(rows.data(), count, p, count, heads, 0, hd, o, hd);
            for (std::int64_t h = 0; h < heads; ++h)
              finish_head(k_, o + h * hd, hd, sums[h], angles.row(n), angles.pairs, release);
          }
        }
      });
}

}  // namespace nibble::ops::cpu
