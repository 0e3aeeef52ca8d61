// Hyper-connections (deepseek-v4.md 2.2, 2.3).
#include <algorithm>
#include <cmath>

#include "ops/cpu/cpu_backend.h"

namespace nibble::ops::cpu {
namespace {

constexpr std::int64_t kMaxMix = (2L + kMaxStreams) * kMaxStreams;

float sigmoid(float x) {
  return 1.0f / (1.0f + std::exp(-x));
}

using V4 = float __attribute__((vector_size(16)));

void transpose(V4 m[4]) {
  const V4 a = __builtin_shufflevector(m[0], m[1], 0, 4, 1, 5);
  const V4 b = __builtin_shufflevector(m[2], m[3], 0, 4, 1, 5);
  const V4 c = __builtin_shufflevector(m[0], m[1], 2, 6, 3, 7);
  const V4 d = __builtin_shufflevector(m[2], m[3], 2, 6, 3, 7);
  m[0] = __builtin_shufflevector(a, b, 0, 1, 4, 5);
  m[1] = __builtin_shufflevector(a, b, 2, 3, 6, 7);
  m[2] = __builtin_shufflevector(c, d, 0, 1, 4, 5);
  m[3] = __builtin_shufflevector(c, d, 2, 3, 6, 7);
}

// Divides each column by (eps + its sum), rows added in order.
void normalise_columns(V4 m[4], float eps) {
  const V4 sum = (((V4{eps, eps, eps, eps} + m[0]) + m[1]) + m[2]) + m[3];
  for (int j = 0; j < 4; ++j) m[j] /= sum;
}

// The rounds of the reference for 4 streams, four columns at a time: the same additions and
// divisions in the same order.
void normalise_four(float* c, int iters, float eps) {
  V4 m[4];
  std::copy_n(c, 16, reinterpret_cast<float*>(m));
  for (int round = 0; round < iters; ++round) {
    if (round > 0) {
      transpose(m);
      normalise_columns(m, eps);
      transpose(m);
    }
    normalise_columns(m, eps);
  }
  std::copy_n(reinterpret_cast<const float*>(m), 16, c);
}

void normalise(float* c, std::int64_t hc, int iters, float eps) {
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
  if (hc == 4)
    normalise_four(c, iters, eps);
  else
    normalise(c, hc, iters, eps);
}

std::int64_t stream_count(const tensor::View& streams) {
  NIBBLE_CHECK(streams.shape[1] >= 1 && streams.shape[1] <= kMaxStreams, "{} streams, at most {}",
               streams.shape[1], kMaxStreams);
  return streams.shape[1];
}

// About what a token costs one thread: passes over its streams, and the rows of fn.
double row_ns(std::int64_t length, std::int64_t fn_rows) {
  return static_cast<double>(length) * (0.4 + 0.05 * static_cast<double>(fn_rows));
}

// m[r] = rsqrt(mean(f^2) + eps) * (fn[r] . f), f the concatenated streams of one token.
void scaled_fn(const Kernels& k, const float* f, std::int64_t length, const tensor::View& fn,
               float eps, float* m) {
  const std::int64_t rows = fn.shape[0];
  const float s = 1.0f / std::sqrt(k.sum_squares(f, length) / static_cast<float>(length) + eps);
  k.dots(fn.f32(), length, rows, f, length, m, 1);
  for (std::int64_t r = 0; r < rows; ++r) m[r] *= s;
}

}  // namespace

void CpuBackend::hc_expand(const HcExpandArgs& a) {
  const std::int64_t n = a.streams.shape[0], d = a.streams.shape[2];
  const std::int64_t hc = stream_count(a.streams);
  check_shape(a.pending.out, {n, d}, "hc.out");
  check_shape(a.pending.post, {n, hc}, "hc.post");
  check_shape(a.pending.comb, {n, hc, hc}, "hc.comb");
  parallel(n, row_ns(hc * d, 0), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t)
      k_.expand(a.streams.f32() + t * hc * d, a.pending.out.f32() + t * d,
                a.pending.post.f32() + t * hc, a.pending.comb.f32() + t * hc * hc, hc, d,
                numerics().release);
  });
}

void CpuBackend::hc_boundary(const HcBoundaryArgs& a) {
  const std::int64_t n = a.streams.shape[0], d = a.streams.shape[2];
  const std::int64_t hc = stream_count(a.streams);
  const std::int64_t mixes = (2 + hc) * hc;
  check_shape(a.site.fn, {mixes, hc * d}, "hc.fn");
  check_shape(a.site.base, {mixes}, "hc.base");
  check_shape(a.site.scale, {3}, "hc.scale");
  check_shape(a.norm, {d}, "hc.norm");
  check_shape(a.y, {n, d}, "hc.y");
  check_shape(a.pending.post, {n, hc}, "hc.post");
  check_shape(a.pending.comb, {n, hc, hc}, "hc.comb");
  if (!a.pending.out.empty()) check_shape(a.pending.out, {n, d}, "hc.out");
  const bool release = numerics().release;
  const float *base = a.site.base.f32(), *scale = a.site.scale.f32();
  parallel(n, row_ns(hc * d, mixes), [&](std::int64_t begin, std::int64_t end) {
    float m[kMaxMix], pre[kMaxStreams];
    for (std::int64_t t = begin; t < end; ++t) {
      float* streams = a.streams.f32() + t * hc * d;
      float* post = a.pending.post.f32() + t * hc;
      float* comb = a.pending.comb.f32() + t * hc * hc;
      if (!a.pending.out.empty())
        k_.expand(streams, a.pending.out.f32() + t * d, post, comb, hc, d, release);
      scaled_fn(k_, streams, hc * d, a.site.fn, a.constants.rms_eps, m);
      for (std::int64_t i = 0; i < hc; ++i) {
        pre[i] = sigmoid(m[i] * scale[0] + base[i]) + a.constants.hc_eps;
        post[i] = 2.0f * sigmoid(m[hc + i] * scale[1] + base[hc + i]);
      }
      for (std::int64_t i = 0; i < hc * hc; ++i)
        comb[i] = m[2 * hc + i] * scale[2] + base[2 * hc + i];
      sinkhorn(comb, hc, a.constants.sinkhorn_iters, a.constants.hc_eps);
      float* y = a.y.f32() + t * d;
      k_.collapse(streams, pre, hc, d, release, y);
      norm_row(y, a.norm.f32(), d, a.constants.rms_eps, y);
    }
  });
}

void CpuBackend::hc_head(const HcHeadArgs& a) {
  const std::int64_t n = a.streams.shape[0], d = a.streams.shape[2];
  const std::int64_t hc = stream_count(a.streams);
  check_shape(a.fn, {hc, hc * d}, "hc_head.fn");
  check_shape(a.base, {hc}, "hc_head.base");
  check_shape(a.scale, {1}, "hc_head.scale");
  if (!a.norm.empty()) check_shape(a.norm, {d}, "hc_head.norm");
  check_shape(a.y, {n, d}, "hc_head.y");
  parallel(n, row_ns(hc * d, hc), [&](std::int64_t begin, std::int64_t end) {
    float p[kMaxStreams];
    for (std::int64_t t = begin; t < end; ++t) {
      const float* streams = a.streams.f32() + t * hc * d;
      scaled_fn(k_, streams, hc * d, a.fn, a.constants.rms_eps, p);
      for (std::int64_t i = 0; i < hc; ++i)
        p[i] = sigmoid(p[i] * a.scale.f32()[0] + a.base.f32()[i]) + a.constants.hc_eps;
      float* y = a.y.f32() + t * d;
      k_.collapse(streams, p, hc, d, numerics().release, y);
      if (!a.norm.empty()) norm_row(y, a.norm.f32(), d, a.constants.rms_eps, y);
    }
  });
}

void CpuBackend::stream_mean(const StreamMeanArgs& a) {
  const std::int64_t n = a.streams.shape[0], d = a.streams.shape[2], width = a.y.shape[1];
  const std::int64_t hc = stream_count(a.streams);
  check_shape(a.y, {n, width}, "stream_mean.y");
  NIBBLE_CHECK(a.first >= 0 && a.first + d <= width, "columns {} to {} of {}", a.first, a.first + d,
               width);
  float share[kMaxStreams];
  std::fill_n(share, hc, 1.0f / static_cast<float>(hc));
  parallel(n, row_ns(hc * d, 0), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t)
      k_.collapse(a.streams.f32() + t * hc * d, share, hc, d, numerics().release,
                  a.y.f32() + t * width + a.first);
  });
}

void CpuBackend::stream_add(const StreamAddArgs& a) {
  const std::int64_t n = a.streams.shape[0], hc = a.streams.shape[1], d = a.streams.shape[2];
  check_shape(a.e, {n, d}, "stream_add.e");
  parallel(n, row_ns(hc * d, 0), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t)
      for (std::int64_t i = 0; i < hc; ++i) {
        float* x = a.streams.f32() + (t * hc + i) * d;
        k_.add(a.e.f32() + t * d, d, x);
        if (numerics().release) k_.round_bf16(x, d);
      }
  });
}

}  // namespace nibble::ops::cpu
