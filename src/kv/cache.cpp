#include "kv/cache.h"

#include <algorithm>

#include "base/check.h"

namespace nibble::kv {
namespace {

using tensor::DType;

constexpr std::int64_t kFloatBytes = sizeof(float);

template <typename Pool>
Pool allocated(ops::Backend& backend, Pool pool) {
  pool.data = static_cast<std::byte*>(backend.allocate(DType::kU8, {pool.bytes()}).data);
  return pool;
}

ops::StatePool state_pool(ops::Backend& backend, int width, std::int64_t slots, std::int64_t ring) {
  ops::StatePool pool{nullptr, nullptr, slots, ring, width};
  pool.values = backend.allocate(DType::kF32, {slots, ring, width}).f32();
  pool.gates = backend.allocate(DType::kF32, {slots, ring, width}).f32();
  return pool;
}

bool overlaps(int ratio) {
  return ratio == 4;
}

LayerCache layer_cache(ops::Backend& backend, const CacheSpec& spec, int ratio) {
  const ops::Numerics& numerics = backend.numerics();
  LayerCache layer;
  layer.ratio = ratio;
  layer.window = allocated(backend, ops::RowPool{nullptr, numerics.kv_rows, spec.head_dim,
                                                 spec.slots, spec.window + ops::kDraftSlack});
  if (ratio == 0) return layer;
  NIBBLE_CHECK(ops::kPageTokens % ratio == 0, "ratio {}", ratio);
  const auto paged = [&](ops::RowFormat format, int width) {
    return allocated(backend,
                     ops::PagedPool{nullptr, format, width, spec.pages, ops::kPageTokens / ratio});
  };
  const int halves = overlaps(ratio) ? 2 : 1;
  const std::int64_t ring = halves * ratio + ops::kDraftSlack;
  layer.entries = paged(numerics.kv_rows, spec.head_dim);
  layer.state = state_pool(backend, halves * spec.head_dim, spec.slots, ring);
  if (overlaps(ratio)) {
    layer.index_keys = paged(numerics.index_rows, spec.index_head_dim);
    layer.index_state = state_pool(backend, halves * spec.index_head_dim, spec.slots, ring);
  }
  return layer;
}

// --- what is live ---

// Neighbours become one range.
void add(std::vector<ops::ByteRange>& out, std::byte* data, std::int64_t bytes) {
  if (bytes == 0) return;
  if (!out.empty() && out.back().data + out.back().bytes == data)
    out.back().bytes += bytes;
  else
    out.push_back({data, bytes});
}

void add_window(std::vector<ops::ByteRange>& out, const ops::RowPool& pool, int window, int slot,
                int position) {
  const std::int64_t bytes = ops::row_bytes(pool.format, pool.width);
  for (int p = std::max(0, position - window); p < position; ++p)
    add(out, pool.row(slot, p), bytes);
}

// The tokens of the open window, and where windows overlap the first halves of those of the window before it.
void add_state(std::vector<ops::ByteRange>& out, const ops::StatePool& pool, int ratio, int slot,
               int position) {
  const int open = position / ratio * ratio;
  const int before = overlaps(ratio) ? std::max(0, open - ratio) : open;
  for (float* data : {pool.values, pool.gates})
    for (int p = before; p < position; ++p)
      add(out, reinterpret_cast<std::byte*>(data + pool.offset(slot, p)),
          (p < open ? pool.width / 2 : pool.width) * kFloatBytes);
}

void add_open_page(std::vector<ops::ByteRange>& out, const ops::PagedPool& pool, int ratio,
                   int position, std::int32_t page) {
  const std::int64_t rows = position % ops::kPageTokens / ratio;
  if (rows > 0) add(out, pool.row(page, 0), rows * ops::row_bytes(pool.format, pool.width));
}

}  // namespace

std::int64_t LayerCache::bytes() const {
  std::int64_t total = 0;
  const auto count = [&](const auto&... pools) {
    ((total += pools.empty() ? 0 : pools.bytes()), ...);
  };
  count(window, entries, state, index_keys, index_state);
  return total;
}

Cache::Cache(ops::Backend& backend, const CacheSpec& spec) : backend_(backend), spec_(spec) {
  NIBBLE_CHECK(spec.slots > 0 && spec.pages > 0 && spec.window > 0, "slots {} pages {} window {}",
               spec.slots, spec.pages, spec.window);
  for (const int ratio : spec.ratios) layers_.push_back(layer_cache(backend, spec, ratio));
}

std::int64_t Cache::bytes() const {
  std::int64_t total = 0;
  for (const LayerCache& layer : layers_) total += layer.bytes();
  return total;
}

std::vector<ops::ByteRange> Cache::live_ranges(int slot, int position, std::int32_t page) const {
  NIBBLE_CHECK(slot >= 0 && slot < spec_.slots && position >= 0, "slot {} of {}, position {}", slot,
               spec_.slots, position);
  NIBBLE_CHECK(position % ops::kPageTokens == 0 || (page >= 0 && page < spec_.pages),
               "page {} of {}", page, spec_.pages);
  std::vector<ops::ByteRange> out;
  for (const LayerCache& layer : layers_) {
    add_window(out, layer.window, spec_.window, slot, position);
    if (layer.ratio == 0) continue;
    add_state(out, layer.state, layer.ratio, slot, position);
    add_open_page(out, layer.entries, layer.ratio, position, page);
    if (layer.index_keys.empty()) continue;
    add_state(out, layer.index_state, layer.ratio, slot, position);
    add_open_page(out, layer.index_keys, layer.ratio, position, page);
  }
  return out;
}

std::vector<std::byte> Cache::save(int slot, int position, std::int32_t page) const {
  const std::vector<ops::ByteRange> ranges = live_ranges(slot, position, page);
  std::vector<std::byte> bytes(static_cast<std::size_t>(ops::total_bytes(ranges)));
  backend_.save_ranges(ranges, bytes);
  return bytes;
}

void Cache::restore(int slot, int position, std::int32_t page, std::span<const std::byte> bytes) {
  backend_.load_ranges(live_ranges(slot, position, page), bytes);
}

std::int64_t Cache::saved_bytes(int position) const {
  return ops::total_bytes(live_ranges(0, position, 0));
}

std::vector<ops::ByteRange> Cache::page_ranges(std::int32_t page) const {
  NIBBLE_CHECK(page >= 0 && page < spec_.pages, "page {} of {}", page, spec_.pages);
  std::vector<ops::ByteRange> out;
  for (const LayerCache& layer : layers_)
    for (const ops::PagedPool* pool : {&layer.entries, &layer.index_keys})
      if (!pool->empty())
        add(out, pool->row(page, 0),
            pool->rows_per_page * ops::row_bytes(pool->format, pool->width));
  return out;
}

std::vector<std::byte> Cache::save_page(std::int32_t page) const {
  const std::vector<ops::ByteRange> ranges = page_ranges(page);
  std::vector<std::byte> bytes(static_cast<std::size_t>(ops::total_bytes(ranges)));
  backend_.save_ranges(ranges, bytes);
  return bytes;
}

void Cache::restore_page(std::int32_t page, std::span<const std::byte> bytes) {
  backend_.load_ranges(page_ranges(page), bytes);
}

std::int64_t Cache::page_bytes() const {
  return ops::total_bytes(page_ranges(0));
}

}  // namespace nibble::kv
