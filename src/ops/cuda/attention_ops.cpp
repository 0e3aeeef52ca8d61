// Queries, window rows, sparse attention: contracts checked, then the launch.
#include <algorithm>

#include "base/check.h"
#include "ops/cuda/cuda_backend.h"
#include "ops/cuda/kernels.h"

namespace nibble::ops::cuda {
void CudaBackend::query_norm_rope(const QueryNormRopeArgs& a) {
  const std::int64_t n = a.batch.rows(), heads = a.q.shape[1], hd = a.q.shape[2];
  check_shape(a.q, {n, heads, hd}, "query.q");
  if (n == 0) return;
  launch_query_norm_rope(a.q.f32(), n, rows_of(a.batch), static_cast<int>(heads),
                         static_cast<int>(hd), a.eps, a.rope, numerics().release, stream_);
}

void CudaBackend::window_insert(const WindowInsertArgs& a) {
  const std::int64_t n = a.batch.rows(), hd = a.window.width;
  check_shape(a.kv, {n, hd}, "window.kv");
  check_shape(a.norm, {hd}, "window.norm");
  NIBBLE_CHECK(a.step.rows_per_slot >= n && a.step.width == hd, "{} step rows of {}",
               a.step.rows_per_slot, a.step.width);
  if (n == 0) return;
  launch_window_insert(a.kv.f32(), n, rows_of(a.batch), a.norm.f32(), a.eps, a.rope,
                       device_pool(a.step), device_pool(a.window), numerics().release, stream_);
}

void CudaBackend::window_commit(const WindowCommitArgs& a) {
  if (std::ranges::all_of(a.batch.segments, fits_ring)) return;
  launch_window_commit(a.batch.rows(), rows_of(a.batch), device_pool(a.step), device_pool(a.window),
                       stream_);
}

void CudaBackend::sparse_attention(const SparseAttentionArgs& a) {
  const std::int64_t n = a.batch.rows(), heads = a.q.shape[1], hd = a.q.shape[2];
  check_shape(a.q, {n, heads, hd}, "attention.q");
  check_shape(a.o, {n, heads, hd}, "attention.o");
  check_shape(a.sink, {heads}, "attention.sink");
  NIBBLE_CHECK(a.window_rows.rows_per_slot >= a.window + kDraftSlack && a.window_rows.width == hd,
               "window of {} in a ring of {} rows", a.window, a.window_rows.rows_per_slot);
  if (!a.entries.empty()) check_pages(a.entries, a.batch, a.ratio);
  NIBBLE_CHECK(!a.whole_segment || a.entries.empty(), "a block of ratio {}", a.ratio);
  if (n == 0) return;
  const std::int64_t context = context_of(a.batch);
  std::int64_t most_keys = std::min<std::int64_t>(a.window, context);
  if (!a.selected.empty())
    most_keys += a.selected.shape[1];
  else if (!a.entries.empty())
    most_keys += context / a.ratio;
  for (const Segment& seg : a.batch.segments)  // of a block, its own rows besides the window
    if (a.whole_segment) most_keys = std::max<std::int64_t>(most_keys, a.window + seg.rows);
  const Attention attention{a.q.f32(),
                            rows_of(a.batch),
                            device_pool(a.step),
                            device_pool(a.window_rows),
                            device_pool(a.entries),
                            a.selected.empty() ? nullptr : a.selected.i32(),
                            a.sink.f32(),
                            a.rope,
                            a.o.f32(),
                            a.scale,
                            static_cast<int>(heads),
                            static_cast<int>(hd),
                            a.window,
                            a.ratio,
                            a.selected.empty() ? 0 : static_cast<int>(a.selected.shape[1]),
                            a.whole_segment,
                            numerics().release};
  launch_sparse_attention(attention, n, most_keys, stream_);
}

}  // namespace nibble::ops::cuda
