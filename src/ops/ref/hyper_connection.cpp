// Hyper-connections (deepseek-v4.md 2.2, 2.3).
#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/ref/ref_backend.h"
#include "ops/ref/rounding.h"

namespace nibble::ops::ref {
namespace {

float sigmoid(float x) {
  return 1.0f / (1.0f + std::exp(-x));
}

// m[i] = rsqrt(mean(f^2) + eps) * (fn[i] . f) with f the concatenated streams of one token.
std::vector<float> scaled_fn(const float* f, std::int64_t length, const tensor::View& fn,
                             float eps) {
  float square = 0.0f;
  for (std::int64_t i = 0; i < length; ++i) square += f[i] * f[i];
  const float s = 1.0f / std::sqrt(square / static_cast<float>(length) + eps);
  std::vector<float> m(static_cast<std::size_t>(fn.shape[0]));
  for (std::size_t r = 0; r < m.size(); ++r) {
    const float* w = fn.f32() + static_cast<std::int64_t>(r) * length;
    float sum = 0.0f;
    for (std::int64_t i = 0; i < length; ++i) sum += w[i] * f[i];
    m[r] = s * sum;
  }
  return m;
}

// Softmax over each row, then alternating column and row normalisations, a column one first and
// last.
void sinkhorn(float* c, std::int64_t hc, int iters, float eps) {
  for (std::int64_t j = 0; j < hc; ++j) {
    float* row = c + j * hc;
    const float top = *std::max_element(row, row + hc);
    float sum = 0.0f;
    for (std::int64_t k = 0; k < hc; ++k) sum += row[k] = std::exp(row[k] - top);
    for (std::int64_t k = 0; k < hc; ++k) row[k] = row[k] / sum + eps;
  }
  for (int round = 0; round < iters; ++round) {
    if (round > 0)
      for (std::int64_t j = 0; j < hc; ++j) {
        float sum = eps;
        for (std::int64_t k = 0; k < hc; ++k) sum += c[j * hc + k];
        for (std::int64_t k = 0; k < hc; ++k) c[j * hc + k] /= sum;
      }
    for (std::int64_t k = 0; k < hc; ++k) {
      float sum = eps;
      for (std::int64_t j = 0; j < hc; ++j) sum += c[j * hc + k];
      for (std::int64_t j = 0; j < hc; ++j) c[j * hc + k] /= sum;
    }
  }
}

// streams[k] = post[k] * out + sum_j comb[j][k] * streams[j] for one token; true: rounded to bf16.
void expand_row(float* streams, const float* out, const float* post, const float* comb,
                std::int64_t hc, std::int64_t d, bool release) {
  std::vector<float> old(streams, streams + hc * d);
  for (std::int64_t k = 0; k < hc; ++k)
    for (std::int64_t i = 0; i < d; ++i) {
      float sum = post[k] * out[i];
      for (std::int64_t j = 0; j < hc; ++j)
        sum += comb[j * hc + k] * old[static_cast<std::size_t>(j * d + i)];
      streams[k * d + i] = release ? bf16_round(sum) : sum;
    }
}

// y = rms_norm(sum_i weight[i] * streams[i]) * norm for one token; null norm: the sum.
void collapse_row(const float* streams, const float* weight, std::int64_t hc, std::int64_t d,
                  const float* norm, float eps, bool release, float* y) {
  for (std::int64_t i = 0; i < d; ++i) {
    float sum = 0.0f;
    for (std::int64_t k = 0; k < hc; ++k) sum += weight[k] * streams[k * d + i];
    y[i] = release ? bf16_round(sum) : sum;
  }
  if (!norm) return;
  rms_norm_row(y, norm, d, eps, y);
  if (release) bf16_round(y, d);
}

}  // namespace

void RefBackend::hc_expand(const HcExpandArgs& a) {
  const std::int64_t n = a.streams.shape[0], hc = a.streams.shape[1], d = a.streams.shape[2];
  check_shape(a.pending.out, {n, d}, "hc.out");
  check_shape(a.pending.post, {n, hc}, "hc.post");
  check_shape(a.pending.comb, {n, hc, hc}, "hc.comb");
  for (std::int64_t t = 0; t < n; ++t)
    expand_row(a.streams.f32() + t * hc * d, a.pending.out.f32() + t * d,
               a.pending.post.f32() + t * hc, a.pending.comb.f32() + t * hc * hc, hc, d,
               numerics().release);
}

void RefBackend::hc_boundary(const HcBoundaryArgs& a) {
  const std::int64_t n = a.streams.shape[0], hc = a.streams.shape[1], d = a.streams.shape[2];
  check_shape(a.site.fn, {(2 + hc) * hc, hc * d}, "hc.fn");
  check_shape(a.site.base, {(2 + hc) * hc}, "hc.base");
  check_shape(a.site.scale, {3}, "hc.scale");
  check_shape(a.y, {n, d}, "hc.y");
  check_shape(a.pending.post, {n, hc}, "hc.post");
  check_shape(a.pending.comb, {n, hc, hc}, "hc.comb");
  if (!a.pending.out.empty()) hc_expand({a.streams, a.pending});
  const float* base = a.site.base.f32();
  const float* scale = a.site.scale.f32();
  std::vector<float> pre(static_cast<std::size_t>(hc));
  for (std::int64_t t = 0; t < n; ++t) {
    const float* streams = a.streams.f32() + t * hc * d;
    float* post = a.pending.post.f32() + t * hc;
    float* comb = a.pending.comb.f32() + t * hc * hc;
    const std::vector<float> mix = scaled_fn(streams, hc * d, a.site.fn, a.constants.rms_eps);
    const float* m = mix.data();
    for (std::int64_t i = 0; i < hc; ++i) {
      pre[static_cast<std::size_t>(i)] = sigmoid(m[i] * scale[0] + base[i]) + a.constants.hc_eps;
      post[i] = 2.0f * sigmoid(m[hc + i] * scale[1] + base[hc + i]);
    }
    for (std::int64_t i = 0; i < hc * hc; ++i)
      comb[i] = m[2 * hc + i] * scale[2] + base[2 * hc + i];
    sinkhorn(comb, hc, a.constants.sinkhorn_iters, a.constants.hc_eps);
    collapse_row(streams, pre.data(), hc, d, a.norm.f32(), a.constants.rms_eps, numerics().release,
                 a.y.f32() + t * d);
  }
}

void RefBackend::hc_head(const HcHeadArgs& a) {
  const std::int64_t n = a.streams.shape[0], hc = a.streams.shape[1], d = a.streams.shape[2];
  check_shape(a.fn, {hc, hc * d}, "hc_head.fn");
  check_shape(a.y, {n, d}, "hc_head.y");
  for (std::int64_t t = 0; t < n; ++t) {
    const float* streams = a.streams.f32() + t * hc * d;
    std::vector<float> p = scaled_fn(streams, hc * d, a.fn, a.constants.rms_eps);
    for (std::int64_t i = 0; i < hc; ++i)
      p[static_cast<std::size_t>(i)] =
          sigmoid(p[static_cast<std::size_t>(i)] * a.scale.f32()[0] + a.base.f32()[i]) +
          a.constants.hc_eps;
    collapse_row(streams, p.data(), hc, d, a.norm.empty() ? nullptr : a.norm.f32(),
                 a.constants.rms_eps, numerics().release, a.y.f32() + t * d);
  }
}

void RefBackend::stream_mean(const StreamMeanArgs& a) {
  const std::int64_t n = a.streams.shape[0], hc = a.streams.shape[1], d = a.streams.shape[2];
  const std::int64_t width = a.y.shape[1];
  check_shape(a.y, {n, width}, "stream_mean.y");
  NIBBLE_CHECK(a.first >= 0 && a.first + d <= width, "columns {} to {} of {}", a.first, a.first + d,
               width);
  const std::vector<float> share(static_cast<std::size_t>(hc), 1.0f / static_cast<float>(hc));
  for (std::int64_t t = 0; t < n; ++t)
    collapse_row(a.streams.f32() + t * hc * d, share.data(), hc, d, nullptr, 0.0f,
                 numerics().release, a.y.f32() + t * width + a.first);
}

void RefBackend::stream_add(const StreamAddArgs& a) {
  const std::int64_t n = a.streams.shape[0], hc = a.streams.shape[1], d = a.streams.shape[2];
  check_shape(a.e, {n, d}, "stream_add.e");
  for (std::int64_t t = 0; t < n; ++t)
    for (std::int64_t k = 0; k < hc; ++k)
      for (std::int64_t i = 0; i < d; ++i) {
        float& x = a.streams.f32()[(t * hc + k) * d + i];
        x = a.e.f32()[t * d + i] + x;
        if (numerics().release) x = bf16_round(x);
      }
}

}  // namespace nibble::ops::ref
