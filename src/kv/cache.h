// What one sequence needs to remember, layer by layer (deepseek-v4.md 3.8), for a number of
// sequence slots.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/backend.h"

namespace nibble::kv {

struct CacheSpec {
  int slots = 1;
  int max_len = 0;        // tokens a sequence
  int max_step_rows = 0;  // rows one sequence may bring into one step
  int window = 0;         // keys
  int head_dim = 0;
  int index_head_dim = 0;
  std::vector<int> ratios;  // per layer, drafters included: 0, 4 or 128
};

// Pools of one layer; empty where the layer keeps nothing of the kind.
struct LayerCache {
  ops::RowPool window;
  ops::RowPool entries;
  ops::StatePool state;
  ops::RowPool index_keys;
  ops::StatePool index_state;

  std::int64_t bytes() const;
};

// Allocated once, from the backend. Holds no lengths: a sequence's length lives with the sequence,
// and going back to n tokens is nothing but saying so. That holds because rings are longer than
// what a step can overwrite:
//   window rows     window + max_step_rows
//   open state      2 * ratio (overlapping) or ratio, plus max_step_rows
// and entries past floor(n / ratio) are invisible until they are written again.
class Cache {
 public:
  Cache(ops::Backend& backend, const CacheSpec& spec);

  const CacheSpec& spec() const { return spec_; }
  const LayerCache& layer(int index) const { return layers_[static_cast<std::size_t>(index)]; }
  std::int64_t bytes() const;

 private:
  CacheSpec spec_;
  std::vector<LayerCache> layers_;
};

}  // namespace nibble::kv
