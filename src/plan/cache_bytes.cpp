#include "plan/cache_bytes.h"

#include <algorithm>

#include "base/check.h"

namespace nibble::plan {
namespace {

constexpr std::int64_t kF32Pair = 2 * sizeof(float);  // a value and its gate

std::int64_t pages(std::int64_t context, const CacheLayout& layout) {
  return (context + layout.page_tokens - 1) / layout.page_tokens;
}

// Rows of ratio r for whole pages; a page shorter than r still needs the row it is part of.
std::int64_t entry_rows(std::int64_t context, const CacheLayout& layout, std::int64_t ratio) {
  return (pages(context, layout) * layout.page_tokens + ratio - 1) / ratio;
}

}  // namespace

RowSizes row_sizes(const model::ModelConfig& c, KvDtype dtype) {
  using ops::RowFormat;
  const auto sizes = [&](RowFormat row, RowFormat index, const char* name, const char* index_name) {
    return RowSizes{ops::row_bytes(row, c.head_dim), ops::row_bytes(index, c.index_head_dim), name,
                    index_name};
  };
  switch (dtype) {
    case KvDtype::kFp32:
      return sizes(RowFormat::kF32, RowFormat::kF32, "fp32", "fp32");
    case KvDtype::kBf16:
      return sizes(RowFormat::kBf16, RowFormat::kBf16, "bf16", "bf16");
    case KvDtype::kFp8:
      return sizes(RowFormat::kFp8Nope, RowFormat::kFp4Index, "fp8", "fp4");
    case KvDtype::kAuto:
      break;
  }
  NIBBLE_CHECK(false, "kv dtype {}", static_cast<int>(dtype));
}

LayerCounts layer_counts(const model::ModelConfig& c) {
  LayerCounts counts;
  for (int l = 0; l < c.num_layers; ++l) {
    const int ratio = c.compress_ratios[static_cast<std::size_t>(l)];
    ++(ratio == 0 ? counts.sliding : ratio == 4 ? counts.csa : counts.hca);
  }
  return counts;
}

SequenceBytes sequence_bytes(const model::ModelConfig& c, const RowSizes& rows,
                             const CacheLayout& layout, std::int64_t context, int draft_stages) {
  const LayerCounts n = layer_counts(c);
  const std::int64_t hd = c.head_dim, di = c.index_head_dim;
  SequenceBytes out;
  out.entries = n.csa * entry_rows(context, layout, 4) * (rows.row + rows.index_key) +
                n.hca * entry_rows(context, layout, 128) * rows.row;
  const std::int64_t window = (c.sliding_window + layout.ring_slack) * rows.row;
  out.windows = n.all() * window;
  out.draft = draft_stages * window;
  // A CSA compressor keeps both halves of two windows, 8 rows of 2 * width; its indexer likewise.
  out.open_state = n.csa * (8 + layout.ring_slack) * 2 * (hd + di) * kF32Pair +
                   n.hca * (128 + layout.ring_slack) * hd * kF32Pair;
  // At a page's end HCA windows are closed and CSA needs the last window's first halves only (3.8).
  out.snapshot =
      (n.all() + draft_stages) * c.sliding_window * rows.row + n.csa * 4 * (hd + di) * kF32Pair;
  return out;
}

double marginal_bytes(const model::ModelConfig& c, const RowSizes& rows) {
  const LayerCounts n = layer_counts(c);
  return static_cast<double>(n.csa * (rows.row + rows.index_key)) / 4.0 +
         static_cast<double>(n.hca * rows.row) / 128.0;
}

std::int64_t read_bytes(const model::ModelConfig& c, const RowSizes& rows, std::int64_t context) {
  const LayerCounts n = layer_counts(c);
  const std::int64_t window = std::min<std::int64_t>(c.sliding_window, context);
  const std::int64_t entries = context / 4;
  return n.all() * window * rows.row +
         n.csa *
             (std::min<std::int64_t>(c.index_topk, entries) * rows.row + entries * rows.index_key) +
         n.hca * (context / 128) * rows.row;
}

KeyCounts keys_at(const model::ModelConfig& c, std::int64_t position) {
  const LayerCounts n = layer_counts(c);
  const std::int64_t seen = position + 1;
  const std::int64_t window = std::min<std::int64_t>(c.sliding_window, seen);
  const std::int64_t entries = seen / 4, pooled = seen / 128;
  const std::int64_t attended =
      n.all() * window + n.csa * std::min<std::int64_t>(c.index_topk, entries) + n.hca * pooled;
  return {static_cast<double>(attended), static_cast<double>(n.csa * entries)};
}

KeyCounts mean_keys(const model::ModelConfig& c, std::int64_t context) {
  KeyCounts sum;
  for (std::int64_t t = 0; t < context; ++t) {
    const KeyCounts at = keys_at(c, t);
    sum.attended += at.attended;
    sum.scored += at.scored;
  }
  return {sum.attended / static_cast<double>(context), sum.scored / static_cast<double>(context)};
}

}  // namespace nibble::plan
