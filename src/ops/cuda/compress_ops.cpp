// Compressors and the lightning indexer: contracts checked, then the launch.
#include <algorithm>

#include "base/check.h"
#include "ops/cuda/cuda_backend.h"
#include "ops/cuda/kernels.h"

namespace nibble::ops::cuda {
void CudaBackend::compress(const CompressArgs& a) {
  const std::int64_t n = a.batch.rows(), width = a.entries.width, stored = a.state.width,
                     ratio = a.ratio;
  NIBBLE_CHECK(stored == (a.overlap ? 2 : 1) * width, "state width {} for entries of {}", stored,
               width);
  check_shape(a.values, {n, stored}, "compress.values");
  check_shape(a.gates, {n, stored}, "compress.gates");
  check_shape(a.ape, {ratio, stored}, "compress.ape");
  NIBBLE_CHECK(a.state.ring >= (a.overlap ? 2 : 1) * ratio + kDraftSlack,
               "state ring {} for ratio {}", a.state.ring, ratio);
  check_pages(a.entries, a.batch, a.ratio);
  if (n == 0) return;
  const Compress compress{
      a.values.f32(), a.gates.f32(),          a.ape.f32(), a.norm.f32(), rows_of(a.batch),
      a.state,        device_pool(a.entries), a.rope,      a.eps,        a.ratio,
      a.overlap,      numerics().release};
  launch_compress(compress, n, std::ranges::all_of(a.batch.segments, fits_ring), stream_);
}

void CudaBackend::index_select(const IndexSelectArgs& a) {
  const std::int64_t n = a.batch.rows(), heads = a.q.shape[1], width = a.q.shape[2], topk = a.topk;
  check_shape(a.q, {n, heads, width}, "index.q");
  check_shape(a.weights, {n, heads}, "index.weights");
  check_shape(a.selected, {n, topk}, "index.selected");
  check_pages(a.keys, a.batch, a.ratio);
  if (n == 0) return;
  const std::int64_t most = context_of(a.batch) / a.ratio;
  Select select{a.q.f32(),
                a.weights.f32(),
                rows_of(a.batch),
                a.rope,
                device_pool(a.keys),
                nullptr,
                a.selected.i32(),
                most,
                static_cast<int>(heads),
                a.ratio,
                static_cast<int>(topk),
                numerics().release};
  if (most > topk) select.scores = index_scores_.get<float>(n * most);
  launch_index_select(select, n, stream_);
}

}  // namespace nibble::ops::cuda
