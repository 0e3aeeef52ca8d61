#include "kv/cache.h"

#include "base/check.h"

namespace nibble::kv {
namespace {

using tensor::DType;

ops::RowPool row_pool(ops::Backend& backend, ops::RowFormat format, int width, std::int64_t slots,
                      std::int64_t rows) {
  ops::RowPool pool{nullptr, format, width, slots, rows};
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
  layer.window = row_pool(backend, numerics.kv_rows, spec.head_dim, spec.slots,
                          spec.window + spec.max_step_rows);
  if (ratio == 0) return layer;
  const std::int64_t entries = (spec.max_len + ratio - 1) / ratio;
  const int halves = overlaps(ratio) ? 2 : 1;
  const std::int64_t ring = halves * ratio + spec.max_step_rows;
  layer.entries = row_pool(backend, numerics.kv_rows, spec.head_dim, spec.slots, entries);
  layer.state = state_pool(backend, halves * spec.head_dim, spec.slots, ring);
  if (overlaps(ratio)) {
    layer.index_keys =
        row_pool(backend, numerics.index_rows, spec.index_head_dim, spec.slots, entries);
    layer.index_state = state_pool(backend, halves * spec.index_head_dim, spec.slots, ring);
  }
  return layer;
}

}  // namespace

std::int64_t LayerCache::bytes() const {
  std::int64_t total = 0;
  for (const ops::RowPool* pool : {&window, &entries, &index_keys})
    if (!pool->empty()) total += pool->bytes();
  for (const ops::StatePool* pool : {&state, &index_state})
    if (!pool->empty()) total += pool->bytes();
  return total;
}

Cache::Cache(ops::Backend& backend, const CacheSpec& spec) : spec_(spec) {
  NIBBLE_CHECK(spec.slots > 0 && spec.max_len > 0 && spec.max_step_rows > 0,
               "slots {} max_len {} step {}", spec.slots, spec.max_len, spec.max_step_rows);
  for (const int ratio : spec.ratios) layers_.push_back(layer_cache(backend, spec, ratio));
}

std::int64_t Cache::bytes() const {
  std::int64_t total = 0;
  for (const LayerCache& layer : layers_) total += layer.bytes();
  return total;
}

}  // namespace nibble::kv
