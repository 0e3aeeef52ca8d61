// route, routed_experts.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "ops/ref/rounding.h"
#include "ops/testing/op_table.h"

namespace nibble::ops::testing {
namespace {

using quant::Format;

void route_case(OpTable& table, Format format, std::int64_t n, std::int64_t d, std::int64_t experts,
                std::int64_t k, bool hash) {
  table.begin("route", fmt::format("{} n={} D={} {} of {}{}", quant::format_name(format), n, d, k,
                                   experts, hash ? " by hash" : ""));
  const Weights gate =
      make_weights(table, format, experts, d, 2.0f / std::sqrt(static_cast<float>(d)));
  const Floats x = table.activations(n * d, 1.5f), bias = table.normal(experts, 0.3f);
  constexpr std::int64_t kVocab = 37;
  Ints hash_table;
  for (std::int64_t i = 0; i < kVocab * k; ++i)
    hash_table.push_back(table.integer(0, static_cast<std::int32_t>(experts - 1)));
  std::vector<TokenId> ids;
  for (std::int64_t i = 0; i < n; ++i) ids.push_back(table.integer(0, kVocab - 1));
  const float scaling = 1.5f;
  struct Result {
    Ints experts;
    Floats weights;
  };
  const auto [found, expected] = table.both([&](Backend& b) {
    const tensor::View out = poisoned_ints(b, {n, k}), weights = poisoned(b, {n, k});
    b.route({put(b, x, {n, d}), gate.upload(b), hash ? tensor::View{} : put(b, bias, {experts}),
             hash ? put(b, hash_table, {kVocab, k}) : tensor::View{}, ids, scaling, out, weights});
    return Result{ints_of(b, out), floats_of(b, weights)};
  });
  Tolerance tolerance;
  Floats found_weights, expected_weights;  // of the rows that chose the same experts
  for (std::int64_t t = 0; t < n; ++t) {
    // s = sqrt(softplus(logit)), whose slope is at most 0.6.
    std::vector<double> s, error;
    for (std::int64_t e = 0; e < experts; ++e) {
      double logit = 0.0;
      for (std::int64_t c = 0; c < d; ++c)
        logit += static_cast<double>(gate.row(e)[c]) * x[static_cast<std::size_t>(t * d + c)];
      s.push_back(std::sqrt(std::log1p(std::exp(logit))));
      error.push_back(0.6 * dot_bound(gate.row(e), x.data() + t * d, d) + 16.0 * kUnit * s.back());
    }
    const Ints a(found.experts.begin() + t * k, found.experts.begin() + (t + 1) * k);
    const Ints e(expected.experts.begin() + t * k, expected.experts.begin() + (t + 1) * k);
    if (a != e) {
      // Right only if each expert that is in one and not in the other scores the same.
      Ints differing;
      std::set_symmetric_difference(a.begin(), a.end(), e.begin(), e.end(),
                                    std::back_inserter(differing));
      double low = 1e300, high = -1e300, off = 0.0;
      for (const std::int32_t id : differing) {
        if (hash || id < 0 || id >= experts)
          return table.fail(fmt::format("row {}: expected {}, found {}", t, fmt::join(e, " "),
                                        fmt::join(a, " ")));
        const auto at = static_cast<std::size_t>(id);
        low = std::min(low, s[at] + bias[at]);
        high = std::max(high, s[at] + bias[at]);
        off = std::max(off, error[at]);
      }
      if (!std::is_sorted(a.begin(), a.end()) || differing.empty() || high - low > 2.0 * off)
        return table.fail(
            fmt::format("row {}: expected {}, found {}", t, fmt::join(e, " "), fmt::join(a, " ")));
      continue;
    }
    double sum = 0.0, sum_error = 0.0;
    for (std::int64_t j = 0; j < k; ++j) {
      const auto id =
          static_cast<std::size_t>(expected.experts[static_cast<std::size_t>(t * k + j)]);
      sum += s[id];
      sum_error += error[id];
    }
    for (std::int64_t j = 0; j < k; ++j) {
      const auto at = static_cast<std::size_t>(t * k + j);
      const auto id = static_cast<std::size_t>(expected.experts[at]);
      found_weights.push_back(found.weights[at]);
      expected_weights.push_back(expected.weights[at]);
      tolerance.bound.push_back(scaling / sum * (error[id] + s[id] / sum * sum_error) +
                                std::fabs(expected.weights[at]) * 16.0 * kUnit);
    }
  }
  table.check("weights", found_weights, expected_weights, tolerance);
}

void route_tie_case(OpTable& table) {
  table.begin("route", "all scores tie");
  // A gate of zeros: the lower ids win, in order.
  const Weights gate{Format::kBF16, 6, 32, Floats(192, 0.0f), Floats(192, 0.0f)};
  const Floats x = table.normal(96);
  const auto [found, expected] = table.both([&](Backend& b) {
    const tensor::View out = poisoned_ints(b, {3, 4}), weights = poisoned(b, {3, 4});
    b.route({put(b, x, {3, 32}),
             gate.upload(b),
             put(b, Floats(6, 0.25f), {6}),
             {},
             {},
             1.0f,
             out,
             weights});
    return ints_of(b, out);
  });
  table.check_equal("experts", found, expected);
  table.check_equal("experts", found, Ints{0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3});
}

struct Experts {
  Weights w1, w3, w2;
};

// The formats of an expert's three matrices; a checkpoint may mix them.
struct ExpertFormats {
  Format w1, w3, w2;
  ExpertFormats(Format all) : w1(all), w3(all), w2(all) {}  // NOLINT(google-explicit-constructor)
  ExpertFormats(Format gate, Format up, Format down) : w1(gate), w3(up), w2(down) {}
  std::string name() const {
    if (w1 == w3 && w3 == w2) return quant::format_name(w1);
    return fmt::format("{}/{}/{}", quant::format_name(w1), quant::format_name(w3),
                       quant::format_name(w2));
  }
};

Experts make_experts(OpTable& table, const ExpertFormats& formats, std::int64_t d,
                     std::int64_t inner) {
  const float up = 2.0f / std::sqrt(static_cast<float>(d));
  const float down = 1.0f / std::sqrt(static_cast<float>(inner));
  return {make_weights(table, formats.w1, inner, d, up),
          make_weights(table, formats.w3, inner, d, up),
          make_weights(table, formats.w2, d, inner, down)};
}

// x as the matrix takes it.
Floats input_of(const Weights& w, Floats x, bool release) {
  if (release && quant::traits(w.format).fp8_activations)
    ref::fp8_round_blocks(x.data(), static_cast<std::int64_t>(x.size()), 128);
  return x;
}

// One expert on one token: magnitudes in double and the error of each output.
struct Trace {
  Floats hidden;
  std::vector<double> error, slack;  // [D]
};

Trace trace_expert(const Experts& e, const Floats& x, float weight, float limit, bool release) {
  Trace trace;
  const Floats gate_x = input_of(e.w1, x, release), up_x = input_of(e.w3, x, release);
  std::vector<double> hidden_error, quantum;
  const std::int64_t inner = e.w1.rows, d = e.w1.cols;
  for (std::int64_t i = 0; i < inner; ++i) {
    double g = 0.0, u = 0.0;
    for (std::int64_t c = 0; c < d; ++c) {
      g += static_cast<double>(e.w1.row(i)[c]) * gate_x[static_cast<std::size_t>(c)];
      u += static_cast<double>(e.w3.row(i)[c]) * up_x[static_cast<std::size_t>(c)];
    }
    if (release) {
      g = ref::bf16_round(static_cast<float>(g));
      u = ref::bf16_round(static_cast<float>(u));
    }
    g = std::min<double>(g, limit);
    u = std::clamp<double>(u, -limit, limit);
    const double silu = g / (1.0 + std::exp(-g)), h = weight * silu * u;
    trace.hidden.push_back(static_cast<float>(h));
    hidden_error.push_back(std::fabs(weight) *
                               (1.1 * std::fabs(u) * dot_bound(e.w1.row(i), gate_x.data(), d) +
                                std::fabs(silu) * dot_bound(e.w3.row(i), up_x.data(), d)) +
                           16.0 * kUnit * std::fabs(h));
  }
  if (release) {
    for (float& h : trace.hidden) h = ref::bf16_round(h);
    trace.hidden = input_of(e.w2, std::move(trace.hidden), release);
  }
  for (std::int64_t r = 0; r < d; ++r) {
    double squares = 0.0, largest = 0.0;
    for (std::int64_t i = 0; i < inner; ++i) {
      const double off = e.w2.row(r)[i] * hidden_error[static_cast<std::size_t>(i)];
      squares += off * off;
      largest = std::max<double>(
          largest, std::fabs(e.w2.row(r)[i] * trace.hidden[static_cast<std::size_t>(i)]));
    }
    trace.error.push_back(dot_bound(e.w2.row(r), trace.hidden.data(), inner) +
                          4.0 * std::sqrt(squares));
    trace.slack.push_back(largest / 4.0);  // two hidden values one step of E4M3 (1/8) away
  }
  return trace;
}

// The inner channels from 64 on become 2^18 times smaller, and odd outputs see only those: which
// channels share a scale then shows. The weights' own blocks must be no wider than 64.
void widen(Experts& e) {
  const std::int64_t inner = e.w1.rows, d = e.w1.cols;
  for (std::int64_t i = 0; i < inner; ++i) {
    const float up = i < 64 ? 1.0f : 0x1p-9f;
    for (std::int64_t c = 0; c < d; ++c)
      for (Weights* w : {&e.w1, &e.w3}) w->published[static_cast<std::size_t>(i * d + c)] *= up;
    for (std::int64_t r = 1; r < d; r += 2)
      e.w2.published[static_cast<std::size_t>(r * inner + i)] *= i < 64 ? 0.0f : 0x1p18f;
  }
  for (Weights* w : {&e.w1, &e.w3, &e.w2}) {
    const quant::HostMatrix encoded =
        quant::encode_matrix(w->format, w->rows, w->cols, w->published);
    for (std::int64_t r = 0; r < w->rows; ++r)
      quant::decode_row(encoded, r,
                        {w->values.data() + r * w->cols, static_cast<std::size_t>(w->cols)});
  }
}

void experts_case(OpTable& table, const ExpertFormats& routed_format,
                  const ExpertFormats& shared_format, std::int64_t n, std::int64_t d,
                  std::int64_t inner, std::int64_t experts, std::int64_t k, float limit,
                  bool wide = false) {
  table.begin("routed_experts",
              fmt::format("{} + {} n={} D={} I={} {} of {} limit={}", routed_format.name(),
                          shared_format.name(), n, d, inner, k, experts, limit));
  std::vector<Experts> routed;
  for (std::int64_t e = 0; e < experts; ++e)
    routed.push_back(make_experts(table, routed_format, d, inner));
  Experts shared = make_experts(table, shared_format, d, inner);
  if (wide) {
    for (Experts& e : routed) widen(e);
    widen(shared);
  }
  const Floats x = table.activations(n * d, 1.5f), weights = table.uniform(n * k, 0.1f, 1.5f);
  Ints chosen;
  for (std::int64_t i = 0; i < n * k; ++i)
    chosen.push_back(table.integer(0, static_cast<std::int32_t>(experts - 1)));
  const auto [found, expected] = table.both([&](Backend& b) {
    const auto upload = [&](const Experts& e) {
      return ExpertWeights{e.w1.upload(b), e.w3.upload(b), e.w2.upload(b)};
    };
    std::vector<ExpertWeights> uploaded;
    uploaded.reserve(routed.size());
    for (const Experts& e : routed) uploaded.push_back(upload(e));
    const tensor::View y = poisoned(b, {n, d});
    b.routed_experts({put(b, x, {n, d}), put(b, chosen, {n, k}), put(b, weights, {n, k}), uploaded,
                      upload(shared), limit, y});
    return floats_of(b, y);
  });
  // A row in which a hidden value was rounded the other way differs in many outputs, but such rows are
  // few.
  Tolerance tolerance{
      .bound = {}, .rounded = table.release(), .quanta = 2.0, .slack = {}, .flips = 0.1};
  for (std::int64_t t = 0; t < n; ++t) {
    const Floats input(x.begin() + t * d, x.begin() + (t + 1) * d);
    std::vector<double> bound(static_cast<std::size_t>(d), 0.0), slack = bound;
    for (std::int64_t j = 0; j <= k; ++j) {
      const auto at = static_cast<std::size_t>(t * k + j);
      const Experts& e = j < k ? routed[static_cast<std::size_t>(chosen[at])] : shared;
      const Trace trace =
          trace_expert(e, input, j < k ? weights[at] : 1.0f, limit, table.release());
      for (std::size_t i = 0; i < bound.size(); ++i) {
        bound[i] += trace.error[i];
        slack[i] += trace.slack[i];
      }
    }
    for (std::size_t i = 0; i < bound.size(); ++i) {
      const double y = std::fabs(expected[static_cast<std::size_t>(t * d) + i]);
      tolerance.bound.push_back(bound[i] + 8.0 * kUnit * y);
      tolerance.slack.push_back(slack[i]);
    }
  }
  table.check("y", found, expected, tolerance);
}

}  // namespace

void moe_cases(OpTable& table) {
  for (const Format format :
       {Format::kBF16, Format::kF32, Format::kFp8Block128, Format::kFp8Block32}) {
    for (const bool hash : {false, true}) {
      route_case(table, format, 0, 64, 8, 2, hash);
      route_case(table, format, 1, 256, 16, 2, hash);
      route_case(table, format, 41, 100, 37, 6, hash);
      route_case(table, format, 3, 8, 1, 1, hash);
    }
  }
  route_tie_case(table);
  for (const Format format : quant::kFormats) {
    // INT4 with groups of 128 needs channels in multiples of them.
    const std::int64_t m = format == Format::kInt4G128 ? 128 : 1;
    const auto up = [m](std::int64_t size) { return (size + m - 1) / m * m; };
    experts_case(table, format, Format::kFp8Block128, 0, up(64), up(32), 4, 2, 10.0f);
    experts_case(table, format, Format::kFp8Block128, 1, 256, 128, 16, 2, 10.0f);
    experts_case(table, format, Format::kBF16, 64, up(64), up(160), 5, 3, 1.0f);
    // one expert, all tokens
    experts_case(table, format, Format::kF32, 130, up(96), up(64), 1, 1, 10.0f);
  }
  experts_case(table, Format::kMxfp4, Format::kFp8Block128, 7, 288, 96, 40, 6, 10.0f);
  experts_case(table, Format::kF32, Format::kF32, 5, 33, 21, 3, 2, 0.5f);
  experts_case(table, Format::kFp8Block32, Format::kFp8Block32, 20, 64, 192, 3, 2, 10.0f, true);
  // Formats mixed within an expert: each matrix takes its own kind of input.
  experts_case(table, {Format::kNvfp4, Format::kNvfp4, Format::kMxfp4}, Format::kBF16, 9, 96, 64, 6,
               2, 10.0f);
  experts_case(table, {Format::kFp8Block32, Format::kInt4G32, Format::kBF16}, Format::kNvfp4, 9, 96,
               64, 6, 2, 10.0f);
}

}  // namespace nibble::ops::testing
