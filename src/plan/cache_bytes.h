// What a sequence's cache takes and what a decoded token reads of it (deepseek-v4.md 3.8, 9.1).
#pragma once

#include <cstdint>
#include <string>

#include "model/config.h"
#include "nibble/types.h"
#include "ops/numerics.h"
#include "ops/row_pool.h"

namespace nibble::plan {

struct RowSizes {
  std::int64_t row = 0;         // bytes of a window row or compressed entry
  std::int64_t index_key = 0;   // bytes of an index key
  const char* name = "";        // "fp8", "bf16", "fp32"
  const char* index_name = "";  // the keys': "fp4", "bf16", "fp32"
};

// kAuto must have been resolved.
RowSizes row_sizes(const model::ModelConfig& config, KvDtype dtype);

// Layers of the backbone by compression ratio.
struct LayerCounts {
  std::int64_t sliding = 0, csa = 0, hca = 0;  // ratio 0, 4, 128
  std::int64_t all() const { return sliding + csa + hca; }
};
LayerCounts layer_counts(const model::ModelConfig& config);

// How rings and arrays are sized.
struct CacheLayout {
  std::int64_t page_tokens = 1;  // compressed rows come in whole pages
  std::int64_t ring_slack = 0;   // rows that rings are longer than the window or ratio
};
inline constexpr CacheLayout kCacheLayout{ops::kPageTokens, ops::kDraftSlack};  // kv::Cache

struct SequenceBytes {
  std::int64_t entries = 0;     // compressed rows and index keys
  std::int64_t windows = 0;     // window rows of the backbone
  std::int64_t open_state = 0;  // compressors: fp32 values and gates of tokens not yet pooled
  std::int64_t draft = 0;       // window rows of the drafter's stages
  std::int64_t snapshot = 0;    // what kv::Cache::save() takes at the end of a page
};

SequenceBytes sequence_bytes(const model::ModelConfig& config, const RowSizes& rows,
                             const CacheLayout& layout, std::int64_t context, int draft_stages);

// Bytes a token adds to the cache far from the start, and those one decoded token at position `context` reads.
double marginal_bytes(const model::ModelConfig& config, const RowSizes& rows);
std::int64_t read_bytes(const model::ModelConfig& config, const RowSizes& rows,
                        std::int64_t context);

// Keys that the query at `position` attends to, in all layers together; and index keys it scores.
struct KeyCounts {
  double attended = 0.0;
  double scored = 0.0;
};
KeyCounts keys_at(const model::ModelConfig& config, std::int64_t position);
// The mean over positions 0 .. context - 1.
KeyCounts mean_keys(const model::ModelConfig& config, std::int64_t context);

}  // namespace nibble::plan
