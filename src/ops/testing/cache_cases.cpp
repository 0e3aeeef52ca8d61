// query_norm_rope, window_insert, compress: what goes into the cache.
#include <fmt/format.h>

#include <algorithm>

#include "ops/ref/rounding.h"
#include "ops/testing/op_table.h"

namespace nibble::ops::testing {
namespace {

constexpr float kEps = 1e-6f;

// How far rms_norm of n channels may be off, relative to the result.
double norm_error(std::int64_t n) {
  return kUnit * (16.0 * std::sqrt(static_cast<double>(n)) + 16.0);
}

// Spreads bounds over the rotated pairs: each of the two gets from both. cos and sin are good to a
// few units.
void rotate_bounds(double* bound, const float* values, std::int64_t n, int pairs) {
  for (std::int64_t i = n - 2 * pairs; i < n; i += 2) {
    const double sum = bound[i] + bound[i + 1];
    const double size = std::fabs(values[i]) + std::fabs(values[i + 1]);
    bound[i] = bound[i + 1] = sum + 16.0 * kUnit * size;
  }
}

// Release rounds the mean of a head's squares to bf16: true when the order of the sum can decide
// to which side.
bool mean_is_near_a_boundary(const float* q, std::int64_t n) {
  double square = 0.0;
  for (std::int64_t i = 0; i < n; ++i) square += ref::bf16_round(q[i] * q[i]);
  const double mean = square / static_cast<double>(n), off = mean * norm_error(n);
  return ref::bf16_round(static_cast<float>(mean - off)) !=
         ref::bf16_round(static_cast<float>(mean + off));
}

void query_case(OpTable& table, const std::vector<Run>& runs, std::int64_t heads, std::int64_t hd,
                int pairs) {
  table.begin("query_norm_rope",
              fmt::format("heads={} hd={} pairs={}{}", heads, hd, pairs, describe(runs)));
  const OwnedBatch batch = make_batch(runs);
  const std::int64_t n = batch.rows();
  const Floats q = table.normal(n * heads * hd, 5.0f),
               frequencies = make_inverse_frequencies(pairs);
  const auto [found, expected] = table.both([&](Backend& b) {
    const tensor::View view = put(b, q, {n, heads, hd});
    b.begin_step(batch.view());
    b.query_norm_rope({batch.view(), view, kEps, put_rope(b, frequencies)});
    return floats_of(b, view);
  });
  Tolerance tolerance{.bound = std::vector<double>(expected.size()),
                      .rounded = table.release(),
                      .quanta = 1.0,
                      .slack = std::vector<double>(expected.size())};
  for (std::int64_t v = 0; v < n * heads; ++v) {
    double* bound = tolerance.bound.data() + v * hd;
    double* slack = tolerance.slack.data() + v * hd;
    const float* y = expected.data() + v * hd;
    for (std::int64_t i = 0; i < hd; ++i) {
      bound[i] = std::fabs(y[i]) * norm_error(hd);
      // A quantum of either one of the pair before the rotation.
      if (i >= hd - 2 * pairs) slack[i] = bf16_quantum(std::hypot(y[i & ~1], y[i | 1]));
    }
    rotate_bounds(bound, y, hd, pairs);
    if (table.release() && mean_is_near_a_boundary(q.data() + v * hd, hd))
      for (std::int64_t i = 0; i < hd; ++i) bound[i] = std::fabs(y[i]) / 64.0 + 2.0 * slack[i];
  }
  table.check("q", found, expected, tolerance);
}

// Compares the rows of a pool, whose last channels were rotated; what the row format rounds may
// differ by a quantum of its grid.
void check_rows(OpTable& table, RowFormat format, int width, int pairs, const Floats& found,
                const Floats& expected, const std::vector<double>& bound) {
  const bool coarse = format == RowFormat::kFp8Nope || format == RowFormat::kFp4Index;
  Tolerance tolerance{.bound = bound,
                      .rounded = table.release() || format != RowFormat::kF32,
                      .quanta = 2.0,
                      .slack = std::vector<double>(bound.size(), 0.0),
                      .flips = 0.01,
                      // FP8 and FP4 values are bf16 numbers too, unless their scale is tiny.
                      .on_bf16_grid = true};
  for (std::size_t i = 0; coarse && i < bound.size(); ++i) {
    const double magnitude = std::max(std::fabs(found[i]), std::fabs(expected[i]));
    // A step of E4M3 is an eighth of a power of two, of E2M1 a half; below the smallest normal
    // value they stop shrinking with it.
    const std::size_t row = i / static_cast<std::size_t>(width) * static_cast<std::size_t>(width);
    double largest = 0.0;
    for (std::size_t c = row; c < row + static_cast<std::size_t>(width); ++c)
      largest = std::max<double>(largest, std::fabs(expected[c]));
    tolerance.slack[i] = format == RowFormat::kFp8Nope ? magnitude / 8.0 + largest * 0x1p-14
                                                       : magnitude / 2.0 + largest / 6.0;
  }
  // Release: a quantum of either one of a pair before the rotation.
  const auto size = static_cast<std::size_t>(width),
             rotated = size - 2 * static_cast<std::size_t>(pairs);
  for (std::size_t i = 0; table.release() && i < bound.size(); ++i)
    if (i % size >= rotated)
      tolerance.slack[i] +=
          bf16_quantum(std::hypot(expected[i & ~std::size_t{1}], expected[i | 1]));
  table.check("rows", found, expected, tolerance);
}

std::string describe(const std::vector<std::vector<Run>>& steps) {
  std::string what;
  for (const auto& runs : steps) what += describe(runs) + ";";
  return what;
}

// All rows as floats, zeros for those that were never written. Those must be the ones that `written` says, on either side.
std::pair<Floats, Floats> written_rows(OpTable& table, const StoredRows& found,
                                       const StoredRows& expected,
                                       const std::vector<bool>& written) {
  std::pair<Floats, Floats> out;
  for (std::int64_t row = 0; row < expected.count(); ++row) {
    const bool write = written[static_cast<std::size_t>(row)];
    if (found.untouched(row) == write || expected.untouched(row) == write)
      table.fail(fmt::format("row {} is {}written", row, write ? "not " : ""));
    const auto append = [&](Floats& to, const StoredRows& from) {
      const Floats values = from.get(row);
      to.insert(to.end(), values.begin(), values.end());
      if (!write) std::fill(to.end() - static_cast<std::ptrdiff_t>(values.size()), to.end(), 0.0f);
    };
    append(out.first, found);
    append(out.second, expected);
  }
  return out;
}

// Steps one after the other: the ring in the end, and the rows of the last step.
void window_case(OpTable& table, RowFormat format, const std::vector<std::vector<Run>>& steps,
                 int hd, int pairs, std::int64_t slots, std::int64_t ring) {
  table.begin("window_insert", fmt::format("{} hd={} pairs={} ring {}:{}", format_name(format), hd,
                                           pairs, ring, describe(steps)));
  const Floats norm = table.uniform(hd, 0.5f, 1.5f), frequencies = make_inverse_frequencies(pairs);
  std::vector<OwnedBatch> batches;
  std::vector<Floats> kvs;
  std::vector<bool> ring_written(static_cast<std::size_t>(slots * ring));
  for (const auto& runs : steps) {
    batches.push_back(make_batch(runs));
    kvs.push_back(table.normal(batches.back().rows() * hd, 2.0f));
    for (const Run& run : runs)
      for (std::int32_t i = 0; i < run.rows; ++i)
        ring_written[static_cast<std::size_t>(run.slot * ring + (run.position + i) % ring)] = true;
  }
  const std::int64_t last = batches.back().rows(), spare = 2;
  struct Result {
    StoredRows ring, step;
  };
  const auto [found, expected] = table.both([&](Backend& b) {
    Result out{{format, hd, slots * ring}, {format, hd, last + spare}};
    const RowPool pool{out.ring.put(b), format, hd, slots, ring};
    RowPool step;
    for (std::size_t i = 0; i < batches.size(); ++i) {
      const std::int64_t n = batches[i].rows();
      step = {StoredRows(format, hd, n + spare).put(b), format, hd, 1, n + spare};
      b.begin_step(batches[i].view());
      b.window_insert({batches[i].view(), put(b, kvs[i], {n, hd}), put(b, norm, {hd}), kEps,
                       put_rope(b, frequencies), step, pool});
      b.window_commit({batches[i].view(), step, pool});
    }
    out.ring.fetch(b, pool.data);
    out.step.fetch(b, step.data);
    return out;
  });
  std::vector<bool> step_written(static_cast<std::size_t>(last + spare));
  std::fill_n(step_written.begin(), last, true);
  const auto compare = [&](const StoredRows& a, const StoredRows& e,
                           const std::vector<bool>& written) {
    const auto [rows, reference] = written_rows(table, a, e, written);
    std::vector<double> bound(reference.size());
    for (std::size_t row = 0; row < bound.size(); row += static_cast<std::size_t>(hd)) {
      for (std::size_t i = row; i < row + static_cast<std::size_t>(hd); ++i)
        bound[i] = std::fabs(reference[i]) * norm_error(hd);
      rotate_bounds(bound.data() + row, reference.data() + row, hd, pairs);
    }
    check_rows(table, format, hd, pairs, rows, reference, bound);
  };
  compare(found.ring, expected.ring, ring_written);
  compare(found.step, expected.step, step_written);
}

struct Compressor {
  int ratio;
  bool overlap;
  int width, pairs;
};

void compress_case(OpTable& table, RowFormat format, const Compressor& c,
                   const std::vector<std::vector<Run>>& steps, std::int64_t slots,
                   std::int64_t rows_per_page) {
  table.begin("compress", fmt::format("{} ratio={}{} width={} page={}:{}", format_name(format),
                                      c.ratio, c.overlap ? " overlapping" : "", c.width,
                                      rows_per_page, describe(steps)));
  const int stored = c.width * (c.overlap ? 2 : 1);
  const std::int64_t ring = (c.overlap ? 2 : 1) * c.ratio + kDraftSlack;
  const Floats ape = table.normal(c.ratio * stored, 1.0f);
  const Floats norm = table.uniform(c.width, 0.5f, 1.5f);
  const Floats frequencies = make_inverse_frequencies(c.pairs);
  std::int64_t tokens = 0;
  for (const auto& runs : steps) tokens = std::max(tokens, longest(runs));
  const PageTables tables = make_pages(table, slots, tokens, c.ratio, rows_per_page);
  std::vector<OwnedBatch> batches;
  std::vector<Floats> values, gates;
  std::vector<bool> written(static_cast<std::size_t>(tables.rows()));
  for (const auto& runs : steps) {
    batches.push_back(make_batch(runs, &tables));
    values.push_back(table.normal(batches.back().rows() * stored, 1.0f));
    gates.push_back(table.normal(batches.back().rows() * stored, 2.0f));
    for (const Run& run : runs)
      for (std::int64_t w = 0; w < (run.position + run.rows) / c.ratio; ++w)
        written[static_cast<std::size_t>(tables.row(run.slot, w))] = true;
  }
  struct Result {
    StoredRows entries;
    Ints state_values, state_gates;  // as bits: what was never written is NaN
  };
  const auto [found, reference] = table.both([&](Backend& b) {
    Result out{{format, c.width, tables.rows()}, {}, {}};
    const PagedPool pool{out.entries.put(b), format, c.width, tables.pages, rows_per_page};
    const StatePool state = make_state(b, stored, slots, ring);
    for (std::size_t i = 0; i < batches.size(); ++i) {
      const std::int64_t n = batches[i].rows();
      b.begin_step(batches[i].view());
      b.compress({batches[i].view(), put(b, values[i], {n, stored}), put(b, gates[i], {n, stored}),
                  put(b, ape, {c.ratio, stored}), put(b, norm, {c.width}), kEps,
                  put_rope(b, frequencies), c.ratio, c.overlap, state, pool});
    }
    const tensor::Shape shape{slots, ring, stored};
    out.entries.fetch(b, pool.data);
    out.state_values = ints_of(b, {state.values, tensor::DType::kI32, shape});
    out.state_gates = ints_of(b, {state.gates, tensor::DType::kI32, shape});
    return out;
  });
  table.check_equal("state values", found.state_values, reference.state_values);
  table.check_equal("state gates", found.state_gates, reference.state_gates);
  const auto [rows_found, expected] =
      written_rows(table, found.entries, reference.entries, written);

  // e is a mean of values weighted by p = exp(gate - top) / sum: each p is off by some 20 units (the
  // gates span less than 30), each addition by one; independently, so that the error of e has the
  // size of e itself times that, and the norm brings e to size 1.
  const double rows = c.ratio * (c.overlap ? 2 : 1);
  const double e_error = 16.0 * kUnit * (20.0 + std::sqrt(rows));
  std::vector<double> bound(expected.size());
  for (std::size_t row = 0; row < bound.size(); row += static_cast<std::size_t>(c.width)) {
    const float* y = expected.data() + row;
    if (std::all_of(y, y + c.width, [](float v) { return v == 0.0f; })) continue;  // not written
    for (int i = 0; i < c.width; ++i)
      bound[row + static_cast<std::size_t>(i)] =
          1.5 * e_error + std::fabs(y[i]) * norm_error(c.width);
    rotate_bounds(bound.data() + row, y, c.width, c.pairs);
    if (format == RowFormat::kFp4Index)  // the Hadamard rotation mixes all channels
      std::fill_n(bound.data() + row, c.width,
                  *std::max_element(bound.data() + row, bound.data() + row + c.width) * 2.0);
  }
  check_rows(table, format, c.width, c.pairs, rows_found, expected, bound);
}

}  // namespace

void cache_cases(OpTable& table) {
  query_case(table, {}, 2, 32, 4);
  query_case(table, {{0, 0, 1}}, 1, 8, 4);
  query_case(table, {{0, 1000, 1}}, 4, 512, 32);
  query_case(table, {{2, 70000, 3}, {0, 0, 5}, {1, 127, 40}}, 3, 100, 16);
  for (const RowFormat format : {RowFormat::kF32, RowFormat::kBf16, RowFormat::kFp8Nope}) {
    window_case(table, format, {{}}, 128, 32, 1, 12);
    window_case(table, format, {{{0, 0, 1}}}, 512, 32, 1, 12);
    // A second slot stays empty; the ring wraps, in a step and between steps.
    window_case(table, format, {{{0, 0, 5}}, {{0, 5, 9}}, {{0, 14, 7}}}, 128, 32, 2, 12);
    window_case(table, format, {{{2, 300, 6}, {0, 14, 4}, {1, 0, 1}}}, 200, 16, 3, 10);
    // Segments that the ring takes after the step, alone and beside one that it takes at once; longer than the ring, too.
    window_case(table, format, {{{0, 0, 10}}, {{0, 10, 3}}}, 128, 32, 1, 16);
    window_case(table, format, {{{1, 5, 40}, {0, 20, 9}, {2, 0, 13}}}, 128, 32, 3, 14);
  }
  const Compressor csa{4, true, 128, 32}, hca{128, false, 128, 32}, odd{3, true, 160, 8},
      small{5, false, 128, 16};
  for (const RowFormat format :
       {RowFormat::kF32, RowFormat::kBf16, RowFormat::kFp8Nope, RowFormat::kFp4Index}) {
    compress_case(table, format, csa, {{}}, 1, 4);
    compress_case(table, format, csa, {{{0, 0, 3}}}, 1, 4);   // nothing closes
    compress_case(table, format, csa, {{{0, 0, 4}}}, 1, 4);   // the first one closes
    compress_case(table, format, csa, {{{0, 0, 30}}}, 2, 3);  // many in a step, more than the ring
    compress_case(table, format, csa, {{{0, 0, 6}}, {{0, 6, 1}}, {{0, 7, 1}}, {{0, 8, 9}}}, 1, 1);
    compress_case(table, format, csa, {{{1, 0, 7}, {0, 0, 9}}, {{0, 9, 3}, {2, 0, 5}, {1, 7, 6}}},
                  3, 2);
    // A page ends in the middle of a segment, and just before one.
    compress_case(table, format, csa, {{{0, 0, 250}}, {{0, 250, 6}}, {{0, 256, 1}}, {{0, 257, 20}}},
                  1, 64);
    // Back by as much as the ring allows, and on with other tokens.
    compress_case(table, format, csa, {{{0, 0, 21}}, {{0, 21, 9}}, {{0, 22, 9}}, {{0, 23, 25}}}, 1,
                  3);
    compress_case(table, format, hca, {{{0, 0, 300}}}, 1, 2);
    compress_case(table, format, hca, {{{0, 0, 100}}, {{0, 100, 100}}, {{0, 200, 60}}}, 1, 2);
    if (format != RowFormat::kFp4Index) {
      compress_case(table, format, odd, {{{0, 0, 10}}, {{0, 10, 8}}}, 1, 4);
      compress_case(table, format, small, {{{1, 0, 11}, {0, 0, 4}}, {{0, 4, 23}}}, 2, 3);
    }
  }
}

}  // namespace nibble::ops::testing
