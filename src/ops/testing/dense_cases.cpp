// embed, rms_norm, linear, grouped_linear, stream_add.
#include <fmt/format.h>

#include "ops/ref/rounding.h"
#include "ops/testing/op_table.h"

namespace nibble::ops::testing {
namespace {

using quant::Format;

void embed_case(OpTable& table, Format format, std::int64_t n, std::int64_t vocab, std::int64_t d,
                std::int64_t streams) {
  table.begin("embed", fmt::format("{} n={} vocab={} D={} streams={}", quant::format_name(format),
                                   n, vocab, d, streams));
  const Weights w = make_weights(table, format, vocab, d, 1.0f);
  std::vector<TokenId> ids;
  for (std::int64_t i = 0; i < n; ++i)
    ids.push_back(i == 0 ? static_cast<TokenId>(vocab - 1)
                         : table.integer(0, static_cast<std::int32_t>(vocab - 1)));
  const auto [found, expected] = table.both([&](Backend& b) {
    const tensor::View out = poisoned(b, {n, streams, d});
    b.embed({ids, w.upload(b), out});
    return floats_of(b, out);
  });
  table.check_equal("streams", found, expected);
}

void rms_norm_case(OpTable& table, std::int64_t n, std::int64_t d, bool in_place) {
  table.begin("rms_norm", fmt::format("n={} D={}{}", n, d, in_place ? " in place" : ""));
  const Floats x = table.normal(n * d, 3.0f), weight = table.uniform(d, -1.5f, 1.5f);
  const auto [found, expected] = table.both([&](Backend& b) {
    const tensor::View in = put(b, x, {n, d}), out = in_place ? in : poisoned(b, {n, d});
    b.rms_norm({in, put(b, weight, {d}), 1e-6f, out});
    return floats_of(b, out);
  });
  Tolerance tolerance{.bound = {}, .rounded = table.release()};
  for (const float y : expected)
    tolerance.bound.push_back(
        table.release() ? 0.0 : std::fabs(y) * kUnit * (8.0 * std::sqrt(double(d)) + 16.0));
  table.check("y", found, expected, tolerance);
}

// Bounds of y[n][r] = weight[r] . x[n], the weight's rows in groups that see their own part of x.
Tolerance product_bounds(const Weights& w, const Floats& x, std::int64_t n, std::int64_t groups,
                         bool rounded) {
  Tolerance tolerance{.bound = {}, .rounded = rounded};
  const std::int64_t per_group = w.rows / groups;
  for (std::int64_t t = 0; t < n; ++t)
    for (std::int64_t r = 0; r < w.rows; ++r)
      tolerance.bound.push_back(
          dot_bound(w.row(r), x.data() + (t * groups + r / per_group) * w.cols, w.cols));
  return tolerance;
}

void linear_case(OpTable& table, Format format, std::int64_t n, std::int64_t rows,
                 std::int64_t cols, bool quantize, bool round) {
  table.begin("linear",
              fmt::format("{} n={} [{}, {}]{}{}", quant::format_name(format), n, rows, cols,
                          quantize ? " quantize_input" : "", round ? "" : " keep fp32"));
  const Weights w = make_weights(table, format, rows, cols, 0.5f);
  Floats x = table.activations(n * cols, 2.0f);
  const auto [found, expected] = table.both([&](Backend& b) {
    const tensor::View out = poisoned(b, {n, rows});
    b.linear({put(b, x, {n, cols}), w.upload(b), out, quantize, round});
    return floats_of(b, out);
  });
  if (quantize && table.release() && quant::traits(format).fp8_activations)
    for (std::int64_t t = 0; t < n; ++t) ref::fp8_round_blocks(x.data() + t * cols, cols, 128);
  Tolerance tolerance = product_bounds(w, x, n, 1, round && table.release());
  if (quantize && quant::traits(format).fp8_activations &&
      table.on_tensor_cores(OpKind::kLinear, format, rows, cols)) {
    // docs/perf-log.md: within 2^-12.9 of the sum of magnitudes.
    for (std::int64_t i = 0; i < n * rows; ++i)
      for (std::int64_t c = 0; c < cols; ++c)
        tolerance.bound[static_cast<std::size_t>(i)] +=
            0x1p-12 * std::fabs(static_cast<double>(w.row(i % rows)[c]) *
                                x[static_cast<std::size_t>(i / rows * cols + c)]);
    tolerance.flips = 0.5;
  }
  table.check("y", found, expected, tolerance);
}

// Whether encoding 1.0 beside zeros gives 1.0: the scales of the others are no powers of two.
bool holds_one(Format format) {
  return quant::traits(format).bits != 4 || format == Format::kMxfp4;
}

// An identity matrix: y is x as the op rounded it. Magnitudes that differ by more than FP8 spans show
// which channels share a scale.
void identity_case(OpTable& table, Format format, std::int64_t n) {
  table.begin("linear", fmt::format("{} identity n={}", quant::format_name(format), n));
  const std::int64_t d = 288;
  Floats identity(static_cast<std::size_t>(d * d), 0.0f);
  for (std::int64_t i = 0; i < d; ++i) identity[static_cast<std::size_t>(i * (d + 1))] = 1.0f;
  const Weights w{format, d, d, identity, {}};
  Floats x = table.normal(n * d);
  for (std::int64_t i = 0; i < n * d; ++i)
    x[static_cast<std::size_t>(i)] *=
        std::ldexp(1.0f, static_cast<int>(-8L * table.integer(0, 1) - (i % d / 32 * 5) % 17));
  const auto [found, expected] = table.both([&](Backend& b) {
    const tensor::View out = poisoned(b, {n, d});
    b.linear({put(b, x, {n, d}), w.upload(b), out, true, false});
    return floats_of(b, out);
  });
  table.check_equal("y", found, expected);
  if (!table.release() || !quant::traits(format).fp8_activations)
    table.check_equal("y", found, x);  // nothing was rounded
}

void grouped_case(OpTable& table, Format format, std::int64_t n, std::int64_t groups,
                  std::int64_t rows_per_group, std::int64_t cols) {
  table.begin("grouped_linear", fmt::format("{} n={} {} x [{}, {}]", quant::format_name(format), n,
                                            groups, rows_per_group, cols));
  const Weights w = make_weights(table, format, groups * rows_per_group, cols, 0.5f);
  const Floats x = table.activations(n * groups * cols, 2.0f);
  const auto [found, expected] = table.both([&](Backend& b) {
    const tensor::View out = poisoned(b, {n, w.rows});
    b.grouped_linear({put(b, x, {n, groups * cols}), w.upload(b), static_cast<int>(groups), out});
    return floats_of(b, out);
  });
  table.check("y", found, expected, product_bounds(w, x, n, groups, table.release()));
}

void stream_add_case(OpTable& table, std::int64_t n, std::int64_t streams, std::int64_t d) {
  table.begin("stream_add", fmt::format("n={} streams={} D={}", n, streams, d));
  const Floats e = table.normal(n * d), h = table.normal(n * streams * d);
  const auto [found, expected] = table.both([&](Backend& b) {
    const tensor::View out = put(b, h, {n, streams, d});
    b.stream_add({put(b, e, {n, d}), out});
    return floats_of(b, out);
  });
  table.check_equal("streams", found, expected);
}

}  // namespace

void dense_cases(OpTable& table) {
  for (const Format format : quant::kFormats) {
    const bool narrow = quant::traits(format).bits == 4;
    embed_case(table, format, 0, 10, narrow ? 128 : 32, 4);
    embed_case(table, format, 1, 1, narrow ? 128 : 7, 1);
    embed_case(table, format, 70, 67, narrow ? 256 : 96, 4);
  }
  for (const std::int64_t d : {1, 7, 8, 96, 131, 512}) {
    rms_norm_case(table, 3, d, false);
    rms_norm_case(table, 33, d, true);
  }
  rms_norm_case(table, 0, 64, false);
  for (const Format format : quant::kFormats) {
    // 4-bit formats come in whole groups; the others also end in partial ones.
    const bool any_cols = quant::traits(format).bits != 4;
    const auto cols = [&](std::int64_t wanted) {
      const std::int64_t group = any_cols ? 1 : quant::traits(format).block_cols;
      return (wanted + group - 1) / group * group;
    };
    linear_case(table, format, 0, 40, cols(64), true, true);
    for (const std::int64_t n : {1, 2, 3, 4, 7, 97, 200})
      linear_case(table, format, n, 65, cols(160), n % 2 == 1, true);
    linear_case(table, format, 1, 1, cols(32), true, true);
    linear_case(table, format, 2, 31, cols(33), false, true);
    linear_case(table, format, 1, 200, cols(1), false, true);
    linear_case(table, format, 5, 130, cols(259), true, true);
    linear_case(table, format, 1, 130, cols(259), true, false);
    linear_case(table, format, 9, 64, cols(1024), true, false);
    linear_case(table, format, 1, 96, cols(2048), true, true);
    if (holds_one(format)) {
      identity_case(table, format, 1);
      identity_case(table, format, 5);
    }
    grouped_case(table, format, 0, 2, 32, cols(64));
    grouped_case(table, format, 1, 2, 128, cols(256));
    grouped_case(table, format, 5, 4, 64, cols(128));
    grouped_case(table, format, 3, 3, 21, cols(77));
    grouped_case(table, format, 100, 8, 5, cols(64));
  }
  stream_add_case(table, 0, 4, 16);
  stream_add_case(table, 1, 1, 5);
  stream_add_case(table, 19, 4, 100);
}

}  // namespace nibble::ops::testing
