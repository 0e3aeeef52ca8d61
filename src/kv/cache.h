// What sequences need to remember, layer by layer (deepseek-v4.md 3.8): rings for a number of slots, and pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ops/backend.h"

namespace nibble::kv {

struct CacheSpec {
  int slots = 1;
  int pages = 0;   // of ops::kPageTokens tokens, shared by all sequences
  int window = 0;  // keys
  int head_dim = 0;
  int index_head_dim = 0;
  std::vector<int> ratios;  // per layer, drafters included: 0, 4 or 128
};

// Pools of one layer; empty where the layer keeps nothing of the kind.
struct LayerCache {
  int ratio = 0;
  ops::RowPool window;
  ops::PagedPool entries;
  ops::StatePool state;
  ops::PagedPool index_keys;
  ops::StatePool index_state;

  std::int64_t bytes() const;
};

// Allocated once, from the backend. Holds no lengths and no owners: those live with the sequence, and going back to n tokens is
// nothing but saying so, for up to ops::kDraftSlack tokens: rings are that much longer than what the next token needs,
//   window rows     window + kDraftSlack
//   open state      2 * ratio (overlapping) or ratio, plus kDraftSlack
// and entries past floor(n / ratio) are invisible until they are written again.
class Cache {
 public:
  // Borrows the backend.
  Cache(ops::Backend& backend, const CacheSpec& spec);

  const CacheSpec& spec() const { return spec_; }
  const LayerCache& layer(int index) const { return layers_[static_cast<std::size_t>(index)]; }
  std::int64_t bytes() const;

  // What a sequence of `position` tokens keeps besides its full pages, as host bytes: the last `window` rows of each layer, the
  // open compressor state, and what its open page `page` holds (ignored where position is a multiple of ops::kPageTokens). The
  // slot may have seen up to ops::kDraftSlack tokens more. restore() takes the bytes back, in any slot and page; the sequence
  // then continues at `position` and cannot go back behind it.
  std::vector<std::byte> save(int slot, int position, std::int32_t page) const;
  void restore(int slot, int position, std::int32_t page, std::span<const std::byte> bytes);
  std::int64_t saved_bytes(int position) const;

  // All rows of a page, in every layer.
  std::vector<std::byte> save_page(std::int32_t page) const;
  void restore_page(std::int32_t page, std::span<const std::byte> bytes);
  std::int64_t page_bytes() const;

 private:
  // Where that lies. The bytes, and their order, are a function of the position alone.
  std::vector<ops::ByteRange> live_ranges(int slot, int position, std::int32_t page) const;
  std::vector<ops::ByteRange> page_ranges(std::int32_t page) const;

  ops::Backend& backend_;
  CacheSpec spec_;
  std::vector<LayerCache> layers_;
};

}  // namespace nibble::kv
