// hc_boundary, hc_expand, hc_head, stream_mean.
#include <fmt/format.h>

#include <algorithm>

#include "ops/testing/op_table.h"

namespace nibble::ops::testing {
namespace {

struct Sizes {
  std::int64_t n, hc, d;
  std::int64_t length() const { return hc * d; }
};

// What one site gets: the streams, and what the last sublayer left for them.
struct Inputs {
  Floats streams, out, post, comb, fn, base, scale, norm;
};

Inputs draw(OpTable& table, const Sizes& s, std::int64_t mixes) {
  Inputs in;
  in.streams = table.normal(s.n * s.length(), 1.5f);
  in.out = table.normal(s.n * s.d, 2.0f);
  in.post = table.uniform(s.n * s.hc, 0.0f, 2.0f);
  in.comb = table.uniform(s.n * s.hc * s.hc, 0.0f, 1.0f);
  in.fn = table.normal(mixes * s.length(), 2.0f / std::sqrt(static_cast<float>(s.length())));
  in.base = table.normal(mixes);
  in.scale = table.uniform(3, 0.5f, 1.5f);
  in.norm = table.uniform(s.d, 0.5f, 1.5f);
  return in;
}

// Five additions of known size; release: one rounding.
Tolerance expand_bounds(const Inputs& in, const Sizes& s, bool release) {
  Tolerance tolerance{.bound = {}, .rounded = release};
  for (std::int64_t t = 0; t < s.n; ++t)
    for (std::int64_t k = 0; k < s.hc; ++k)
      for (std::int64_t i = 0; i < s.d; ++i) {
        double size = std::fabs(in.post[t * s.hc + k] * in.out[t * s.d + i]);
        for (std::int64_t j = 0; j < s.hc; ++j)
          size +=
              std::fabs(in.comb[(t * s.hc + j) * s.hc + k] * in.streams[(t * s.hc + j) * s.d + i]);
        tolerance.bound.push_back(4.0 * static_cast<double>(s.hc + 1) * kUnit * size);
      }
  return tolerance;
}

// The mix of one token, in double, with the error that it may have. off[length]: how far the streams
// themselves may be off, 0 when both backends start from the same ones; flipped: some of them may be
// a bf16 quantum away.
struct Mix {
  double s = 0.0;                // rsqrt of the mean square
  std::vector<double> m, error;  // [mixes]
};

Mix mix_of(const float* f, const double* off, bool flipped, const Inputs& in, const Sizes& s,
           double eps) {
  const std::int64_t length = s.length();
  double square = 0.0, off_square = 0.0;
  for (std::int64_t i = 0; i < length; ++i) {
    square += static_cast<double>(f[i]) * f[i];
    off_square += off[i] * off[i];
  }
  Mix mix;
  mix.s = 1.0 / std::sqrt(square / static_cast<double>(length) + eps);
  const double flip = flipped ? 3.0 * 0x1p-8 : 0.0;
  const double root = std::sqrt(static_cast<double>(length));
  for (std::size_t r = 0; r < in.base.size(); ++r) {
    const float* fn = in.fn.data() + static_cast<std::int64_t>(r) * length;
    double sum = 0.0, largest = 0.0, moved = 0.0;
    for (std::int64_t i = 0; i < length; ++i) {
      const double product = static_cast<double>(fn[i]) * f[i];
      sum += product;
      largest = std::max(largest, std::fabs(product));
      moved += fn[i] * off[i] * fn[i] * off[i];
    }
    mix.m.push_back(mix.s * sum);
    mix.error.push_back(mix.s *
                            (dot_bound(fn, f, length) + 4.0 * std::sqrt(moved) + flip * largest) +
                        std::fabs(mix.m.back()) *
                            (16.0 * root * kUnit + std::sqrt(off_square / square) + flip / root));
  }
  return mix;
}

// Bounds of y = rms_norm(sum_i pre[i] * streams[i]) * norm for one token; of the sum itself without a norm.
void add_collapse_bounds(Tolerance& tolerance, const float* streams, const std::vector<double>& pre,
                         const std::vector<double>& pre_error, const double* off,
                         const Floats& norm, const Sizes& s, double eps) {
  std::vector<double> c, error;
  double square = 0.0, square_error = 0.0;
  for (std::int64_t i = 0; i < s.d; ++i) {
    double sum = 0.0, size = 0.0, moved = 0.0;
    for (std::int64_t k = 0; k < s.hc; ++k) {
      const double x = streams[k * s.d + i], p = pre[static_cast<std::size_t>(k)];
      sum += p * x;
      size += std::fabs(p * x);
      moved += pre_error[static_cast<std::size_t>(k)] * std::fabs(x) + p * off[k * s.d + i];
    }
    c.push_back(sum);
    error.push_back(moved + size * 4.0 * static_cast<double>(s.hc + 1) * kUnit);
    square += sum * sum;
    square_error += error.back() * error.back();
  }
  if (norm.empty()) {
    tolerance.bound.insert(tolerance.bound.end(), error.begin(), error.end());
    return;
  }
  const double d = static_cast<double>(s.d), r = 1.0 / std::sqrt(square / d + eps);
  const double r_error = r * std::sqrt(square_error / d) + 16.0 * std::sqrt(d) * kUnit;
  for (std::size_t i = 0; i < c.size(); ++i) {
    const double weight = r * std::fabs(norm[i]);
    tolerance.bound.push_back(weight * error[i] + weight * std::fabs(c[i]) * r_error);
    tolerance.slack.push_back(weight * bf16_quantum(c[i]));
  }
}

HcPending pending_of(Backend& b, const Inputs& in, const Sizes& s, bool with_out) {
  return {with_out ? put(b, in.out, {s.n, s.d}) : tensor::View{}, put(b, in.post, {s.n, s.hc}),
          put(b, in.comb, {s.n, s.hc, s.hc})};
}

void expand_case(OpTable& table, const Sizes& s) {
  table.begin("hc_expand", fmt::format("n={} hc={} D={}", s.n, s.hc, s.d));
  const Inputs in = draw(table, s, 1);
  const auto [found, expected] = table.both([&](Backend& b) {
    const tensor::View streams = put(b, in.streams, {s.n, s.hc, s.d});
    b.hc_expand({streams, pending_of(b, in, s, true)});
    return floats_of(b, streams);
  });
  table.check("streams", found, expected, expand_bounds(in, s, table.release()));
}

void boundary_case(OpTable& table, const Sizes& s, bool with_out, const HcConstants& constants) {
  table.begin("hc_boundary", fmt::format("n={} hc={} D={}{} rounds={} hc_eps={}", s.n, s.hc, s.d,
                                         with_out ? "" : " nothing pending",
                                         constants.sinkhorn_iters, constants.hc_eps));
  const std::int64_t mixes = (2 + s.hc) * s.hc;
  const Inputs in = draw(table, s, mixes);
  struct Result {
    Floats streams, post, comb, y;
  };
  const auto [found, expected] = table.both([&](Backend& b) {
    const tensor::View streams = put(b, in.streams, {s.n, s.hc, s.d});
    HcPending pending = pending_of(b, in, s, with_out);
    if (!with_out) {
      pending.post = poisoned(b, {s.n, s.hc});
      pending.comb = poisoned(b, {s.n, s.hc, s.hc});
    }
    const tensor::View y = poisoned(b, {s.n, s.d});
    b.hc_boundary(
        {streams,
         pending,
         {put(b, in.fn, {mixes, s.length()}), put(b, in.base, {mixes}), put(b, in.scale, {3})},
         put(b, in.norm, {s.d}),
         constants,
         y});
    return Result{floats_of(b, streams), floats_of(b, pending.post), floats_of(b, pending.comb),
                  floats_of(b, y)};
  });
  std::vector<double> off(in.streams.size(), 0.0);
  if (with_out) {
    const Tolerance expanded = expand_bounds(in, s, table.release());
    table.check("streams", found.streams, expected.streams, expanded);
    if (!table.release()) off = expanded.bound;
  } else {
    table.check_equal("streams", found.streams, in.streams);
  }
  const bool flipped = with_out && table.release();
  Tolerance post, comb,
      y{.bound = {}, .rounded = table.release(), .quanta = 1.0, .slack = {}, .flips = 0.03};
  const std::size_t hc = static_cast<std::size_t>(s.hc);
  for (std::int64_t t = 0; t < s.n; ++t) {
    const float* streams = expected.streams.data() + t * s.length();
    const double* token_off = off.data() + t * s.length();
    const Mix mix = mix_of(streams, token_off, flipped, in, s, constants.rms_eps);
    std::vector<double> pre, pre_error;
    double logit_error = 0.0;
    for (std::size_t i = 0; i < hc * hc; ++i)
      logit_error = std::max(logit_error, in.scale[2] * mix.error[2 * hc + i] +
                                              8.0 * kUnit * (1.0 + std::fabs(mix.m[2 * hc + i])));
    for (std::size_t i = 0; i < hc; ++i) {
      const double logit = mix.m[i] * in.scale[0] + in.base[i];
      pre.push_back(1.0 / (1.0 + std::exp(-logit)) + constants.hc_eps);
      pre_error.push_back(0.25 * in.scale[0] * mix.error[i] + 16.0 * kUnit);
      post.bound.push_back(0.5 * in.scale[1] * mix.error[hc + i] + 32.0 * kUnit);
    }
    // Row and column normalisation shrink relative differences; each adds a few roundings.
    for (std::size_t i = 0; i < hc * hc; ++i)
      comb.bound.push_back(
          std::fabs(expected.comb[static_cast<std::size_t>(t) * hc * hc + i]) *
          (4.0 * logit_error + 4.0 * kUnit * static_cast<double>(hc + 2) *
                                   static_cast<double>(2 * constants.sinkhorn_iters + 2)));
    add_collapse_bounds(y, streams, pre, pre_error, token_off, in.norm, s, constants.rms_eps);
  }
  if (flipped) y.quanta = 2.0;
  table.check("post", found.post, expected.post, post);
  table.check("comb", found.comb, expected.comb, comb);
  table.check("y", found.y, expected.y, y);
}

void head_case(OpTable& table, const Sizes& s, bool with_norm) {
  table.begin("hc_head",
              fmt::format("n={} hc={} D={}{}", s.n, s.hc, s.d, with_norm ? "" : " no norm"));
  const HcConstants constants{1e-6f, 1e-6f, 20};
  Inputs in = draw(table, s, s.hc);
  if (!with_norm) in.norm.clear();
  const auto [found, expected] = table.both([&](Backend& b) {
    const tensor::View y = poisoned(b, {s.n, s.d});
    b.hc_head({put(b, in.streams, {s.n, s.hc, s.d}), put(b, in.fn, {s.hc, s.length()}),
               put(b, in.base, {s.hc}), put(b, Floats{in.scale[0]}, {1}),
               with_norm ? put(b, in.norm, {s.d}) : tensor::View{}, constants, y});
    return floats_of(b, y);
  });
  const std::vector<double> exact(static_cast<std::size_t>(s.length()), 0.0);
  Tolerance y{.bound = {}, .rounded = table.release(), .quanta = 1.0, .slack = {}, .flips = 0.03};
  for (std::int64_t t = 0; t < s.n; ++t) {
    const float* streams = in.streams.data() + t * s.length();
    const Mix mix = mix_of(streams, exact.data(), false, in, s, constants.rms_eps);
    std::vector<double> p, error;
    for (std::size_t i = 0; i < static_cast<std::size_t>(s.hc); ++i) {
      p.push_back(1.0 / (1.0 + std::exp(-(mix.m[i] * in.scale[0] + in.base[i]))) +
                  constants.hc_eps);
      error.push_back(0.25 * in.scale[0] * mix.error[i] + 16.0 * kUnit);
    }
    add_collapse_bounds(y, streams, p, error, exact.data(), in.norm, s, constants.rms_eps);
  }
  table.check("y", found, expected, y);
}

// Columns beside the mean's stay as they are.
void mean_case(OpTable& table, const Sizes& s) {
  table.begin("stream_mean", fmt::format("n={} hc={} D={}", s.n, s.hc, s.d));
  const std::int64_t first = s.d + 3, width = 3 * s.d + 3;
  const Floats streams = table.normal(s.n * s.length(), 1.5f), before = table.normal(s.n * width);
  const auto [found, expected] = table.both([&](Backend& b) {
    const tensor::View y = put(b, before, {s.n, width});
    b.stream_mean({put(b, streams, {s.n, s.hc, s.d}), y, first});
    return floats_of(b, y);
  });
  Floats found_mean, expected_mean, found_rest, expected_rest;
  for (std::int64_t t = 0; t < s.n; ++t)
    for (std::int64_t i = 0; i < width; ++i) {
      const auto at = static_cast<std::size_t>(t * width + i);
      const bool mean = i >= first && i < first + s.d;
      (mean ? found_mean : found_rest).push_back(found[at]);
      (mean ? expected_mean : expected_rest).push_back(mean ? expected[at] : before[at]);
    }
  Tolerance tolerance{.bound = {}, .rounded = table.release()};
  for (std::int64_t t = 0; t < s.n; ++t)
    for (std::int64_t i = 0; i < s.d; ++i) {
      double size = 0.0;
      for (std::int64_t k = 0; k < s.hc; ++k)
        size += std::fabs(streams[static_cast<std::size_t>(t * s.length() + k * s.d + i)]);
      tolerance.bound.push_back(4.0 * kUnit * size);
    }
  table.check("mean", found_mean, expected_mean, tolerance);
  table.check_equal("other columns", found_rest, expected_rest);
}

}  // namespace

void hyper_connection_cases(OpTable& table) {
  for (const Sizes& s : {Sizes{0, 4, 16}, Sizes{1, 4, 256}, Sizes{5, 4, 100}, Sizes{33, 4, 64},
                         Sizes{3, 1, 40}, Sizes{2, 2, 7}, Sizes{4, 3, 129}}) {
    expand_case(table, s);
    for (const bool with_norm : {true, false}) head_case(table, s, with_norm);
    mean_case(table, s);
    for (const bool with_out : {false, true}) {
      boundary_case(table, s, with_out, {1e-6f, 1e-6f, 20});
      boundary_case(table, s, with_out, {1e-6f, 1e-3f, 5});
      boundary_case(table, s, with_out, {1e-6f, 1e-6f, 1});
    }
  }
}

}  // namespace nibble::ops::testing
