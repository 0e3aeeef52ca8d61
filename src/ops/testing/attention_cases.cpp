// sparse_attention.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "ops/testing/op_table.h"

namespace nibble::ops::testing {
namespace {

struct Shape {
  std::int64_t heads;
  int hd, pairs, window;
  int ratio;          // 0: no entries
  std::int64_t topk;  // 0: all visible entries
  float spread;       // of the queries: how sharp the softmax is
  bool whole_segment = false;
};

// Random ascending ids below `visible`, at most topk, then -1.
void choose(OpTable& table, std::int64_t visible, std::int64_t topk, std::int32_t* out) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(visible));
  std::iota(ids.begin(), ids.end(), 0);
  while (static_cast<std::int64_t>(ids.size()) > topk)
    ids.erase(ids.begin() + table.integer(0, static_cast<std::int32_t>(ids.size()) - 1));
  std::fill(out, out + topk, -1);
  std::copy(ids.begin(), ids.end(), out);
}

// What the segment's queries see lies where they must look for it, and nothing but NaN anywhere else.
struct Stored {
  StoredRows step, window, entries;

  Stored(OpTable& table, RowFormat format, const Shape& s, const OwnedBatch& batch,
         const PageTables& tables, std::int64_t slots)
      : step(format, s.hd, batch.rows()),
        window(format, s.hd, slots * ring(s)),
        entries(format, s.hd, tables.rows()) {
    const auto fill = [&](StoredRows& rows, std::int64_t row) {
      rows.set(row, table.normal(s.hd).data());
    };
    for (const Segment& seg : batch.segments) {
      for (std::int64_t i = 0; i < seg.rows; ++i) fill(step, seg.first_row + i);
      for (std::int64_t p = std::max(0, seg.position - s.window + (s.whole_segment ? 0 : 1));
           p < seg.position; ++p)
        fill(window, seg.slot * ring(s) + p % ring(s));
      for (std::int64_t w = 0; s.ratio && w < (seg.position + seg.rows) / s.ratio; ++w)
        fill(entries, tables.row(seg.slot, w));
    }
  }
  static std::int64_t ring(const Shape& s) { return s.window + kDraftSlack; }
};

void attention_case(OpTable& table, RowFormat format, const Shape& s, const std::vector<Run>& runs,
                    std::int64_t slots, std::int64_t rows_per_page = 4) {
  table.begin(
      "sparse_attention",
      fmt::format("{} heads={} hd={} window={}{} ratio={} topk={} page={}{}", format_name(format),
                  s.heads, s.hd, s.window, s.whole_segment ? " whole" : "", s.ratio, s.topk,
                  rows_per_page, describe(runs)));
  const PageTables tables =
      s.ratio ? make_pages(table, slots, longest(runs), s.ratio, rows_per_page) : PageTables{};
  const OwnedBatch batch = make_batch(runs, s.ratio ? &tables : nullptr);
  const std::int64_t n = batch.rows();
  const Floats q = table.normal(n * s.heads * s.hd, s.spread);
  const Floats sink = table.normal(s.heads, 1.0f);
  const Floats frequencies = make_inverse_frequencies(s.pairs);
  Ints selected(static_cast<std::size_t>(n * s.topk));
  for (const Segment& seg : batch.segments)
    for (std::int32_t i = 0; i < seg.rows && s.topk; ++i)
      choose(table, (seg.position + i + 1) / s.ratio, s.topk,
             selected.data() + (seg.first_row + i) * s.topk);
  const Stored stored(table, format, s, batch, tables, slots);
  const std::int64_t ring = Stored::ring(s);
  const auto [found, expected] = table.both([&](Backend& b) {
    const tensor::View o = poisoned(b, {n, s.heads, s.hd});
    const PagedPool entries{stored.entries.put(b), format, s.hd, tables.pages, rows_per_page};
    b.begin_step(batch.view());
    b.sparse_attention({.batch = batch.view(),
                        .q = put(b, q, {n, s.heads, s.hd}),
                        .step = {stored.step.put(b), format, s.hd, 1, n},
                        .window_rows = {stored.window.put(b), format, s.hd, slots, ring},
                        .window = s.window,
                        .entries = s.ratio ? entries : PagedPool{},
                        .ratio = s.ratio,
                        .selected = s.topk ? put(b, selected, {n, s.topk}) : tensor::View{},
                        .sink = put(b, sink, {s.heads}),
                        .scale = 1.0f / std::sqrt(static_cast<float>(s.hd)),
                        .rope = put_rope(b, frequencies),
                        .o = o,
                        .whole_segment = s.whole_segment});
    return floats_of(b, o);
  });

  // A score is off by its dot product's bound, so p by twice that (numerator and denominator) plus
  // a few units; o is a mean of the rows under p, and no further off than the largest of their
  // deviations from it.
  // Release: a p that is rounded the other way moves all channels of its head, a few of them over a
  // boundary; a case with few heads may have such a head by chance.
  const double flips = 0.04 + 0.6 / static_cast<double>(std::max<std::int64_t>(1, n * s.heads));
  Tolerance tolerance{
      .bound = {}, .rounded = table.release(), .quanta = 2.0, .slack = {}, .flips = flips};
  const double scale = 1.0 / std::sqrt(static_cast<double>(s.hd));
  for (const Segment& seg : batch.segments)
    for (std::int64_t i = 0; i < seg.rows; ++i) {
      const std::int64_t t = seg.position + i, r = seg.first_row + i;
      std::vector<Floats> keys;
      const std::int64_t first_seen = s.whole_segment ? seg.position - s.window : t - s.window + 1;
      const std::int64_t last_seen = s.whole_segment ? seg.position + seg.rows - 1 : t;
      for (std::int64_t p = std::max<std::int64_t>(0, first_seen); p <= last_seen; ++p)
        keys.push_back(p >= seg.position ? stored.step.get(seg.first_row + p - seg.position)
                                         : stored.window.get(seg.slot * ring + p % ring));
      const std::int64_t visible = s.ratio ? (t + 1) / s.ratio : 0;
      for (std::int64_t j = 0; j < (s.topk ? s.topk : visible); ++j) {
        const std::int64_t id = s.topk ? selected[static_cast<std::size_t>(r * s.topk + j)] : j;
        if (id >= 0) keys.push_back(stored.entries.get(tables.row(seg.slot, id)));
      }
      for (std::int64_t h = 0; h < s.heads; ++h) {
        const float* qh = q.data() + (r * s.heads + h) * s.hd;
        std::vector<double> p;
        double error = 0.0, top = sink[static_cast<std::size_t>(h)];
        for (const Floats& row : keys) {
          const float* key = row.data();
          double dot = 0.0;
          for (int d = 0; d < s.hd; ++d) dot += static_cast<double>(qh[d]) * key[d];
          p.push_back(dot * scale);
          top = std::max(top, p.back());
          error =
              std::max(error, dot_bound(qh, key, s.hd) * scale + 4.0 * kUnit * std::fabs(p.back()));
        }
        double sum = std::exp(sink[static_cast<std::size_t>(h)] - top);
        for (double& x : p) sum += x = std::exp(x - top);
        double largest = 0.0;
        for (double& x : p) largest = std::max(largest, x /= sum);
        const double count = static_cast<double>(keys.size());
        const double relative = 2.0 * error + kUnit * (32.0 + 8.0 * std::sqrt(count));
        for (int d = 0; d < s.hd; ++d) {
          // Both of a pair, before it was rotated back.
          const int first = s.hd - 2 * s.pairs, pair = first + (d - first) / 2 * 2;
          const bool rotated = d >= first;
          double squares = 0.0, off = 0.0;
          for (std::size_t j = 0; j < keys.size(); ++j)
            for (const int c : rotated ? std::vector<int>{pair, pair + 1} : std::vector<int>{d}) {
              const double x = p[j] * keys[j][static_cast<std::size_t>(c)];
              squares += x * x;
              off = std::max<double>(off, std::fabs(keys[j][static_cast<std::size_t>(c)]));
            }
          tolerance.bound.push_back(relative * 4.0 * std::sqrt(squares) + 4.0 * kUnit * off * 0.1);
          // Release: a few p one quantum (2^-8 of itself) away.
          tolerance.slack.push_back(
              3.0 * largest * 0x1p-8 * off +
              (rotated ? bf16_quantum(std::sqrt(squares) * std::sqrt(count)) : 0.0));
        }
      }
    }
  table.check("o", found, expected, tolerance);
}

}  // namespace

void attention_cases(OpTable& table) {
  for (const RowFormat format : {RowFormat::kF32, RowFormat::kBf16, RowFormat::kFp8Nope}) {
    const Shape sliding{2, 128, 32, 16, 0, 0, 2.0f}, odd{3, 77, 4, 5, 0, 0, 1.0f};
    const Shape hca{4, 128, 32, 8, 4, 0, 2.0f}, csa{5, 192, 32, 16, 4, 6, 3.0f};
    const Shape sharp{8, 128, 16, 32, 2, 5, 40.0f}, published{4, 512, 32, 128, 4, 32, 1.0f};
    const Shape block{2, 128, 32, 16, 0, 0, 2.0f, true};
    for (const std::vector<Run>& runs : {std::vector<Run>{},
                                         {{0, 0, 5}},
                                         {{0, 1, 5}},
                                         {{1, 15, 5}, {0, 16, 5}, {2, 17, 5}},
                                         {{0, 40, 8}, {1, 3, 1}},
                                         {{0, 100, 9}}})
      attention_case(table, format, block, runs, 3);
    attention_case(table, format, sliding, {}, 1);
    attention_case(table, format, sliding, {{0, 0, 1}}, 1);
    attention_case(table, format, sliding, {{1, 15, 1}}, 2);
    attention_case(table, format, sliding, {{1, 37, 5}, {0, 0, 4}, {2, 99, 1}}, 3);
    attention_case(table, format, sliding, {{1, 30, 9}, {0, 61, 60}}, 2);  // longer than the ring
    if (format != RowFormat::kFp8Nope) attention_case(table, format, odd, {{0, 0, 23}}, 1);
    attention_case(table, format, hca, {{0, 2, 1}}, 1);   // no entry yet
    attention_case(table, format, hca, {{0, 3, 1}}, 1);   // the first, closed by this token
    attention_case(table, format, hca, {{0, 15, 1}}, 1);  // which fills a page
    attention_case(table, format, hca, {{0, 16, 1}}, 1);  // just behind it
    attention_case(table, format, hca, {{0, 19, 2}}, 1);  // the first entry of the next one
    attention_case(table, format, hca, {{0, 0, 41}}, 1,
                   3);  // more in every fourth row, several pages
    attention_case(table, format, hca, {{0, 0, 41}}, 1, 64);  // in one page
    attention_case(table, format, hca, {{0, 130, 2}, {1, 1, 3}}, 2, 1);
    attention_case(table, format, csa, {{0, 0, 1}}, 1);
    attention_case(table, format, csa, {{0, 50, 1}}, 1);
    attention_case(table, format, csa, {{0, 7, 33}, {1, 300, 9}}, 2, 5);
    attention_case(table, format, csa, {{2, 255, 3}, {1, 256, 1}, {0, 250, 30}}, 3, 64);
    attention_case(table, format, sharp, {{0, 61, 11}}, 1, 7);
    attention_case(table, format, published, {{0, 200, 1}}, 1, 64);
    attention_case(table, format, published, {{0, 120, 10}}, 1, 64);
  }
}

}  // namespace nibble::ops::testing
