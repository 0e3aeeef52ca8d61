// Compressors and the lightning indexer (deepseek-v4.md 3.5 to 3.7).
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "ops/cpu/cpu_backend.h"

namespace nibble::ops::cpu {
namespace {

constexpr std::int64_t kKeyBlock = 64;  // index keys decoded together
constexpr std::int64_t kRowTile = 8;    // rows that share them

// Entry w of one sequence: rows of the step from the batch, their gates with ape added already, earlier ones from the ring.
void pool_entry(const Kernels& k, const CompressArgs& a, const Segment& seg, std::int64_t w,
                float* entry) {
  const std::int64_t width = a.entries.width, ratio = a.ratio;
  thread_local std::vector<const float*> values, gates;
  values.clear();
  gates.clear();
  const auto add = [&](std::int64_t position, std::int64_t half) {
    const bool now = position >= seg.position;
    const std::int64_t at = (now ? (seg.first_row + position - seg.position) * a.state.width
                                 : a.state.offset(seg.slot, position)) +
                            half * width;
    values.push_back((now ? a.values.f32() : a.state.values) + at);
    gates.push_back((now ? a.gates.f32() : a.state.gates) + at);
  };
  if (a.overlap && w > 0)
    for (std::int64_t j = 0; j < ratio; ++j) add(ratio * (w - 1) + j, 0);
  for (std::int64_t j = 0; j < ratio; ++j) add(ratio * w + j, a.overlap ? 1 : 0);
  k.pool(values.data(), gates.data(), static_cast<std::int64_t>(values.size()), width, entry);
}

// Orders as the scores do, backwards; both zeros are one, a NaN is below all.
std::uint32_t falling(float score) {
  if (std::isnan(score)) return std::numeric_limits<std::uint32_t>::max();
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(score + 0.0f);
  return bits & 0x80000000u ? bits : ~(bits | 0x80000000u);
}

// out[0..topk): the ids of the topk largest scores, ascending; ties to the lower id.
void choose(const float* scores, std::int64_t count, std::int64_t topk, std::int32_t* out) {
  // One integer for each: the upper half falls as the score grows, the lower half is the id.
  thread_local std::vector<std::uint64_t> order;
  order.resize(static_cast<std::size_t>(count));
  for (std::int64_t w = 0; w < count; ++w)
    order[static_cast<std::size_t>(w)] =
        std::uint64_t{falling(scores[w])} << 32 | static_cast<std::uint64_t>(w);
  std::nth_element(order.begin(), order.begin() + topk, order.end());
  for (std::int64_t j = 0; j < topk; ++j)
    out[j] = static_cast<std::int32_t>(order[static_cast<std::size_t>(j)] & 0xFFFFFFFFu);
  std::sort(out, out + topk);
}

// The keys [begin, begin + count) of a sequence as floats [count][width]: in place when they lie in one page and are stored so,
// else in `space`.
const float* key_floats(const Kernels& k, const PagedPool& keys,
                        std::span<const std::int32_t> pages, std::int64_t begin, std::int64_t count,
                        float* space) {
  const bool together = begin / keys.rows_per_page == (begin + count - 1) / keys.rows_per_page;
  if (keys.format == RowFormat::kF32 && together)
    return reinterpret_cast<const float*>(keys.entry(pages, begin));
  for (std::int64_t w = 0; w < count; ++w)
    k.load_row(keys.format, keys.width, keys.entry(pages, begin + w), space + w * keys.width);
  return space;
}

}  // namespace

void CpuBackend::compress(const CompressArgs& a) {
  const std::int64_t n = a.batch.rows(), width = a.entries.width, stored = a.state.width;
  const std::int64_t ratio = a.ratio;
  NIBBLE_CHECK(ratio >= 1 && stored == (a.overlap ? 2 : 1) * width,
               "ratio {}, state width {} for entries of {}", ratio, stored, width);
  check_shape(a.values, {n, stored}, "compress.values");
  check_shape(a.gates, {n, stored}, "compress.gates");
  check_shape(a.ape, {ratio, stored}, "compress.ape");
  check_shape(a.norm, {width}, "compress.norm");
  NIBBLE_CHECK(a.state.ring >= (a.overlap ? 2 : 1) * ratio + kDraftSlack,
               "state ring {} for ratio {}", a.state.ring, ratio);
  check_pages(a.entries, a.batch, a.ratio);
  tiles_.clear();  // a closing entry each: begin is its number
  for (std::size_t s = 0; s < a.batch.segments.size(); ++s) {
    const Segment& seg = a.batch.segments[s];
    for (std::int64_t w = seg.position / ratio; ratio * (w + 1) <= seg.position + seg.rows; ++w)
      tiles_.push_back({static_cast<std::int32_t>(s), static_cast<std::int32_t>(w),
                        static_cast<std::int32_t>(w)});
  }
  for_each_row(a.batch, 0.2 * static_cast<double>(stored), [&](const Segment& seg, std::int64_t i) {
    k_.add(a.ape.f32() + (seg.position + i) % ratio * stored, stored,
           a.gates.f32() + (seg.first_row + i) * stored);
  });
  const double entry_ns = static_cast<double>(width * ratio * (a.overlap ? 2 : 1)) * 1.2 + 2000.0;
  parallel(static_cast<std::int64_t>(tiles_.size()), entry_ns,
           [&](std::int64_t begin, std::int64_t end) {
             thread_local Scratch<float> space;
             float* entry = space.get(width + 6L * a.rope.pairs);
             float* angles = entry + width;
             for (std::int64_t item = begin; item < end; ++item) {
               const Tile& tile = tiles_[static_cast<std::size_t>(item)];
               const Segment& seg = a.batch.segments[static_cast<std::size_t>(tile.group)];
               const std::int64_t w = tile.begin;
               pool_entry(k_, a, seg, w, entry);
               if (numerics().release) k_.round_bf16(entry, width);
               norm_row(entry, a.norm.f32(), width, a.eps, entry);
               fill_rope_row(a.rope, ratio * w, angles);
               const RopeRow row = rope_row_at(angles, a.rope.pairs);
               float* tail = entry + width - 2L * a.rope.pairs;
               k_.rotate(tail, row.cos, row.sin, 2L * a.rope.pairs);
               if (numerics().release) k_.round_bf16(tail, 2L * a.rope.pairs);
               k_.store_row(a.entries.format, a.entries.width, entry,
                            a.entries.entry(a.batch.pages_of(seg), w));
             }
           });
  // Only now: until here the ring holds what the first entries needed.
  for_each_row(a.batch, 0.2 * static_cast<double>(stored), [&](const Segment& seg, std::int64_t i) {
    if (i < seg.rows - a.state.ring) return;
    const std::int64_t from = (seg.first_row + i) * stored;
    const std::int64_t to = a.state.offset(seg.slot, seg.position + i);
    std::copy_n(a.values.f32() + from, stored, a.state.values + to);
    std::copy_n(a.gates.f32() + from, stored, a.state.gates + to);
  });
}

void CpuBackend::index_select(const IndexSelectArgs& a) {
  const std::int64_t n = a.batch.rows(), heads = a.q.shape[1], width = a.q.shape[2];
  const std::int64_t topk = a.topk;
  check_shape(a.q, {n, heads, width}, "index.q");
  check_shape(a.weights, {n, heads}, "index.weights");
  check_shape(a.selected, {n, topk}, "index.selected");
  NIBBLE_CHECK(a.ratio >= 1 && heads <= kMaxIndexHeads && a.keys.width == width,
               "ratio {}, {} heads, keys of {} channels for {}", a.ratio, heads, a.keys.width,
               width);
  check_pages(a.keys, a.batch, a.ratio);
  const RopeAngles::Rows angles = angles_.of(a.rope, a.batch);
  const auto visible = [&](const Segment& seg, std::int64_t i) {
    return (seg.position + i + 1) / a.ratio;
  };
  // Queries that have a choice, rotated and rounded in place.
  for_each_row(
      a.batch, 2.0 * static_cast<double>(heads * width), [&](const Segment& seg, std::int64_t i) {
        if (visible(seg, i) <= topk) return;
        const std::int64_t r = seg.first_row + i;
        const RopeRow row = angles.row(r);
        float* q = a.q.f32() + r * heads * width;
        for (std::int64_t h = 0; h < heads; ++h)
          k_.rotate(q + (h + 1) * width - 2L * angles.pairs, row.cos, row.sin, 2L * angles.pairs);
        if (numerics().release) k_.round_bf16(q, heads * width);
        if (a.keys.format != RowFormat::kFp4Index) return;
        for (std::int64_t h = 0; h < heads; ++h) k_.hadamard(q + h * width, width);
        k_.round_bf16(q, heads * width);
        k_.round_fp4(q, heads * width);
      });
  const auto score = [&](const Segment& seg, std::int64_t i, const float* keys, std::int64_t count,
                         float* out) {
    const std::int64_t r = seg.first_row + i;
    k_.index_scores(a.q.f32() + r * heads * width, heads, width, a.weights.f32() + r * heads, keys,
                    count, out);
  };
  const auto select = [&](const Segment& seg, std::int64_t i, const float* scores) {
    const std::int64_t count = visible(seg, i);
    std::int32_t* out = a.selected.i32() + (seg.first_row + i) * topk;
    if (count > topk) {
      choose(scores, count, topk, out);
    } else {
      std::iota(out, out + count, 0);
      std::fill(out + count, out + topk, -1);
    }
  };
  const double key_ns = static_cast<double>(heads * width) * 0.1;

  if (n < pool_.size()) {  // the threads share each row's keys
    for (const Segment& seg : a.batch.segments)
      for (std::int64_t i = 0; i < seg.rows; ++i) {
        const std::int64_t count = visible(seg, i);
        float* scores = scores_.get(std::max<std::int64_t>(count, 1));
        if (count > topk)
          parallel((count + kKeyBlock - 1) / kKeyBlock, key_ns * kKeyBlock,
                   [&](std::int64_t begin, std::int64_t end) {
                     thread_local Scratch<float> space;
                     float* decoded = space.get(kKeyBlock * width);
                     for (std::int64_t b = begin; b < end; ++b) {
                       const std::int64_t w = b * kKeyBlock, some = std::min(kKeyBlock, count - w);
                       score(seg, i,
                             key_floats(k_, a.keys, a.batch.pages_of(seg), w, some, decoded), some,
                             scores + w);
                     }
                   });
        select(seg, i, scores);
      }
    return;
  }
  tiles_.clear();
  for (std::size_t s = 0; s < a.batch.segments.size(); ++s)
    for (std::int32_t i = 0; i < a.batch.segments[s].rows; i += kRowTile)
      tiles_.push_back({static_cast<std::int32_t>(s), i,
                        std::min<std::int32_t>(a.batch.segments[s].rows, i + kRowTile)});
  const double tile_ns = key_ns * kRowTile * static_cast<double>(topk);
  parallel(
      static_cast<std::int64_t>(tiles_.size()), tile_ns, [&](std::int64_t begin, std::int64_t end) {
        thread_local Scratch<float> space, score_space;
        float* decoded = space.get(kKeyBlock * width);
        for (std::int64_t item = begin; item < end; ++item) {
          const Tile& tile = tiles_[static_cast<std::size_t>(item)];
          const Segment& seg = a.batch.segments[static_cast<std::size_t>(tile.group)];
          const std::int64_t most = visible(seg, tile.end - 1);
          float* scores = score_space.get(kRowTile * most);
          for (std::int64_t w = 0; most > topk && w < most; w += kKeyBlock) {
            const std::int64_t some = std::min(kKeyBlock, most - w);
            const float* keys = key_floats(k_, a.keys, a.batch.pages_of(seg), w, some, decoded);
            for (std::int64_t i = tile.begin; i < tile.end; ++i)
              if (visible(seg, i) > topk)
                score(seg, i, keys, std::clamp<std::int64_t>(visible(seg, i) - w, 0, some),
                      scores + (i - tile.begin) * most + w);
          }
          for (std::int64_t i = tile.begin; i < tile.end; ++i)
            select(seg, i, scores + (i - tile.begin) * most);
        }
      });
}

}  // namespace nibble::ops::cpu
