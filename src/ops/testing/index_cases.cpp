// index_select.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "ops/ref/rounding.h"
#include "ops/testing/op_table.h"

namespace nibble::ops::testing {
namespace {

struct Shape {
  std::int64_t heads;
  int width, pairs, ratio, topk;
};

// Scores of a query's visible keys in double, and how far a backend's may be off. `q` is rotated
// and rounded as the op does it.
struct Scores {
  std::vector<double> value;
  double error = 0.0;
};

Scores scores_of(const float* q, const float* weights, const float* keys, std::int64_t visible,
                 const Shape& s, bool release) {
  Scores scores;
  for (std::int64_t w = 0; w < visible; ++w) {
    const float* key = keys + w * s.width;
    double sum = 0.0, error = 0.0;
    for (std::int64_t h = 0; h < s.heads; ++h) {
      const float* qh = q + h * s.width;
      double dot = 0.0, largest = 0.0;
      for (int d = 0; d < s.width; ++d) {
        dot += static_cast<double>(qh[d]) * key[d];
        largest = std::max<double>(largest, std::fabs(qh[d] * key[d]));
      }
      sum += weights[h] * std::max(dot, 0.0);
      // Release: one channel of the query may be on the other side of a rounding boundary.
      error +=
          std::fabs(weights[h]) * (dot_bound(qh, key, s.width) + 16.0 * kUnit * std::fabs(dot) +
                                   (release ? largest * 0.5 : 0.0));
    }
    scores.value.push_back(sum);
    scores.error = std::max(scores.error, error);
  }
  return scores;
}

void index_case(OpTable& table, RowFormat format, const Shape& s, const std::vector<Run>& runs,
                std::int64_t slots, std::int64_t rows_per_page, const char* special = "") {
  table.begin("index_select", fmt::format("{} heads={} width={} ratio={} topk={} page={}{} {}",
                                          format_name(format), s.heads, s.width, s.ratio, s.topk,
                                          rows_per_page, describe(runs), special));
  const bool all_tie = std::string_view(special) == "all tie";
  const bool duplicates = std::string_view(special) == "duplicates";
  const PageTables tables = make_pages(table, slots, longest(runs), s.ratio, rows_per_page);
  const OwnedBatch batch = make_batch(runs, &tables);
  const std::int64_t n = batch.rows(), most = longest(runs) / s.ratio;
  Floats q = table.normal(n * s.heads * s.width);
  Floats weights = table.normal(n * s.heads);
  if (all_tie) std::fill(weights.begin(), weights.end(), 0.0f);
  const Floats frequencies = make_inverse_frequencies(s.pairs);
  Floats keys = table.normal(slots * most * s.width);
  if (duplicates)
    for (std::size_t i = static_cast<std::size_t>(s.width); i < keys.size(); ++i)
      keys[i] = keys[i % static_cast<std::size_t>(3 * s.width)];  // three different ones
  StoredRows stored(format, s.width, tables.rows());  // NaN where no row of the batch may look
  for (const Segment& seg : batch.segments)
    for (std::int64_t w = 0; w < (seg.position + seg.rows) / s.ratio; ++w) {
      float* key = keys.data() + (seg.slot * most + w) * s.width;
      stored.set(tables.row(seg.slot, w), key);
      std::ranges::copy(stored.get(tables.row(seg.slot, w)), key);  // on the format's grid
    }
  const auto [found, expected] = table.both([&](Backend& b) {
    const tensor::View selected = poisoned_ints(b, {n, s.topk});
    const PagedPool pool{stored.put(b), format, s.width, tables.pages, rows_per_page};
    b.begin_step(batch.view());
    b.index_select({batch.view(), put(b, q, {n, s.heads, s.width}), put(b, weights, {n, s.heads}),
                    put_rope(b, frequencies), s.ratio, pool, s.topk, selected});
    return ints_of(b, selected);
  });
  std::int64_t swapped = 0;
  for (const Segment& seg : batch.segments)
    for (std::int64_t i = 0; i < seg.rows; ++i) {
      const std::int64_t t = seg.position + i, r = seg.first_row + i;
      const std::int64_t visible = (t + 1) / s.ratio,
                         chosen = std::min<std::int64_t>(visible, s.topk);
      const auto row = [&](const Ints& ids) {
        return Ints(ids.begin() + r * s.topk, ids.begin() + (r + 1) * s.topk);
      };
      const Ints a = row(found), e = row(expected);
      const auto say = [&](const char* why) {
        table.fail(fmt::format("row {} (position {}): {}; expected {}, found {}", r, t, why,
                               fmt::join(e, " "), fmt::join(a, " ")));
      };
      if (a == e) continue;
      if (!std::is_sorted(a.begin(), a.begin() + chosen) ||
          std::adjacent_find(a.begin(), a.begin() + chosen) != a.begin() + chosen || a[0] < 0 ||
          a[static_cast<std::size_t>(chosen - 1)] >= visible ||
          std::any_of(a.begin() + chosen, a.end(), [](std::int32_t id) { return id != -1; }))
        return say("not ascending visible ids followed by -1");
      if (all_tie || duplicates || visible <= s.topk) return say("the choice has no freedom");
      // Another choice is right only if the swapped entries' scores cannot be told apart.
      float* qr = q.data() + r * s.heads * s.width;
      RopeTable rope{frequencies.data(), s.pairs};
      for (std::int64_t h = 0; h < s.heads; ++h) {
        ref::rope_row(qr + h * s.width, s.width, t, rope, 1.0f);
        if (table.release()) ref::bf16_round(qr + h * s.width, s.width);
        if (format == RowFormat::kFp4Index) {
          ref::hadamard(qr + h * s.width, s.width);
          ref::bf16_round(qr + h * s.width, s.width);
          ref::fp4_round_blocks(qr + h * s.width, s.width);
        }
      }
      const Scores scores =
          scores_of(qr, weights.data() + r * s.heads, keys.data() + seg.slot * most * s.width,
                    visible, s, format == RowFormat::kFp4Index || table.release());
      double lost = -1e300, gained = 1e300;
      for (const std::int32_t id : e)
        if (id >= 0 && !std::binary_search(a.begin(), a.begin() + chosen, id))
          lost = std::max(lost, scores.value[static_cast<std::size_t>(id)]);
      for (const std::int32_t id : a)
        if (id >= 0 && !std::binary_search(e.begin(), e.begin() + chosen, id))
          gained = std::min(gained, scores.value[static_cast<std::size_t>(id)]);
      if (!(lost - gained <= 2.0 * scores.error)) return say("a better entry was left out");
      ++swapped;
    }
  if (static_cast<double>(swapped) > 1.0 + 0.02 * static_cast<double>(n))
    table.fail(fmt::format("{} of {} rows chose otherwise at near ties", swapped, n));
}

}  // namespace

void index_cases(OpTable& table) {
  for (const RowFormat format : {RowFormat::kF32, RowFormat::kBf16, RowFormat::kFp4Index}) {
    const Shape small{4, 128, 32, 4, 8}, many{64, 128, 32, 4, 32}, two{3, 64, 16, 2, 1};
    index_case(table, format, small, {}, 1, 8);
    index_case(table, format, small, {{0, 2, 1}}, 1, 8);   // nothing visible
    index_case(table, format, small, {{0, 31, 1}}, 1, 8);  // exactly topk
    index_case(table, format, small, {{0, 35, 1}}, 1, 8);  // one more: the first of the second page
    index_case(table, format, small, {{0, 700, 1}}, 1, 64);
    index_case(table, format, small, {{0, 0, 90}}, 1, 5);
    index_case(table, format, small, {{2, 290, 9}, {0, 30, 7}, {1, 0, 3}}, 3, 64);
    index_case(table, format, small, {{1, 255, 2}, {0, 256, 1}, {2, 259, 40}}, 3, 64);
    index_case(table, format, many, {{0, 517, 5}}, 1, 100);
    index_case(table, format, two, {{0, 0, 60}, {1, 200, 2}}, 2, 1);
    index_case(table, format, small, {{0, 100, 3}}, 1, 7, "all tie");
    index_case(table, format, small, {{0, 100, 3}}, 1, 7, "duplicates");
  }
}

}  // namespace nibble::ops::testing
