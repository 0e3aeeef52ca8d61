// Hyper-connections: contracts checked, then the launch.
#include <algorithm>

#include "base/check.h"
#include "ops/cuda/cuda_backend.h"
#include "ops/cuda/kernels.h"

namespace nibble::ops::cuda {
namespace {

int stream_count(const tensor::View& streams) {
  NIBBLE_CHECK(streams.shape[1] >= 1 && streams.shape[1] <= kMaxStreams, "{} streams, at most {}",
               streams.shape[1], kMaxStreams);
  return static_cast<int>(streams.shape[1]);
}

}  // namespace

void CudaBackend::hc_expand(const HcExpandArgs& a) {
  const std::int64_t n = a.streams.shape[0], d = a.streams.shape[2];
  const int hc = stream_count(a.streams);
  check_shape(a.pending.out, {n, d}, "hc.out");
  check_shape(a.pending.post, {n, hc}, "hc.post");
  check_shape(a.pending.comb, {n, hc, hc}, "hc.comb");
  if (n == 0) return;
  launch_hc_expand(a.streams.f32(), a.pending.out.f32(), a.pending.post.f32(), a.pending.comb.f32(),
                   n, hc, static_cast<int>(d), numerics().release, stream_);
}

void CudaBackend::hc_boundary(const HcBoundaryArgs& a) {
  const std::int64_t n = a.streams.shape[0], d = a.streams.shape[2];
  const int hc = stream_count(a.streams);
  check_shape(a.site.fn, {(2 + hc) * hc, hc * d}, "hc.fn");
  check_shape(a.site.base, {(2 + hc) * hc}, "hc.base");
  check_shape(a.site.scale, {3}, "hc.scale");
  check_shape(a.norm, {d}, "hc.norm");
  check_shape(a.y, {n, d}, "hc.y");
  check_shape(a.pending.post, {n, hc}, "hc.post");
  check_shape(a.pending.comb, {n, hc, hc}, "hc.comb");
  if (!a.pending.out.empty()) check_shape(a.pending.out, {n, d}, "hc.out");
  if (n == 0) return;
  const Boundary boundary{a.streams.f32(),
                          a.pending.out.empty() ? nullptr : a.pending.out.f32(),
                          a.pending.post.f32(),
                          a.pending.comb.f32(),
                          a.site.fn.f32(),
                          a.site.base.f32(),
                          a.site.scale.f32(),
                          a.norm.f32(),
                          a.y.f32(),
                          hc,
                          static_cast<int>(d),
                          a.constants.rms_eps,
                          a.constants.hc_eps,
                          a.constants.sinkhorn_iters,
                          numerics().release};
  launch_hc_boundary(boundary, n, stream_);
}

void CudaBackend::hc_head(const HcHeadArgs& a) {
  const std::int64_t n = a.streams.shape[0], d = a.streams.shape[2];
  const int hc = stream_count(a.streams);
  check_shape(a.fn, {hc, hc * d}, "hc_head.fn");
  check_shape(a.base, {hc}, "hc_head.base");
  check_shape(a.scale, {1}, "hc_head.scale");
  check_shape(a.y, {n, d}, "hc_head.y");
  if (n == 0) return;
  launch_hc_head({a.streams.f32(), a.fn.f32(), a.base.f32(), a.scale.f32(),
                  a.norm.empty() ? nullptr : a.norm.f32(), a.y.f32(), hc, static_cast<int>(d),
                  a.constants.rms_eps, a.constants.hc_eps, numerics().release},
                 n, stream_);
}

void CudaBackend::stream_mean(const StreamMeanArgs& a) {
  const std::int64_t n = a.streams.shape[0], d = a.streams.shape[2], width = a.y.shape[1];
  const int hc = stream_count(a.streams);
  check_shape(a.y, {n, width}, "stream_mean.y");
  NIBBLE_CHECK(a.first >= 0 && a.first + d <= width, "columns {} to {} of {}", a.first, a.first + d,
               width);
  if (n == 0) return;
  launch_stream_mean(a.streams.f32(), n, hc, static_cast<int>(d), numerics().release, a.y.f32(),
                     width, a.first, stream_);
}

}  // namespace nibble::ops::cuda
