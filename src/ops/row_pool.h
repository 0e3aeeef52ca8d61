// Cached rows of one layer: window rows and open compressor state in a ring for every slot, compressed entries and index keys
// in pages that sequences share out.
//
// Row layouts (bytes, in this order; width = channels of the row):
//   kF32       width x fp32
//   kBf16      width x bf16
//   kFp8Nope   (width - 64) x E4M3, 64 x bf16, ceil((width - 64) / 64) + 1 scale bytes E8M0 (one
//   per block of 64, the last
//              byte is zero): 448 + 128 + 8 = 584 for V4. deepseek-v4.md 6.3, 9.1.
//   kFp4Index  width / 2 bytes of E2M1 (low nibble = even channel), width / 32 scale bytes E8M0: 64
//   + 4 = 68 for V4.
//              The stored channels are those after the Hadamard rotation (deepseek-v4.md 3.7).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ops/batch.h"
#include "ops/numerics.h"

namespace nibble::ops {

inline constexpr int kRopeChannels = 64;   // kept in bf16 by kFp8Nope
inline constexpr int kFp8RowBlock = 64;    // channels a scale in kFp8Nope
inline constexpr int kFp4IndexBlock = 32;  // channels a scale in kFp4Index

std::int64_t row_bytes(RowFormat format, int width);

// Rows that a ring has beyond what its next token needs: a sequence may go back by this many tokens, and a step that brings a
// sequence at most one token more than that overwrites nothing that the step itself still reads.
inline constexpr int kDraftSlack = 8;
constexpr bool fits_ring(const Segment& segment) {
  return segment.rows <= kDraftSlack + 1;
}

// A ring of rows for every slot: position p of slot s is row p % rows_per_slot, which starts at
// data + (s * rows_per_slot + p % rows_per_slot) * row_bytes. Memory belongs to the backend.
// With one slot also the rows of a step: row n of the batch is row n.
struct RowPool {
  std::byte* data = nullptr;
  RowFormat format = RowFormat::kF32;
  int width = 0;
  std::int64_t slots = 0;
  std::int64_t rows_per_slot = 0;

  bool empty() const { return data == nullptr; }
  std::int64_t bytes() const { return slots * rows_per_slot * row_bytes(format, width); }
  std::byte* row(std::int64_t slot, std::int64_t position) const {
    return data + (slot * rows_per_slot + position % rows_per_slot) * row_bytes(format, width);
  }
};

// Compressed entries or index keys: row r of page p starts at data + (p * rows_per_page + r) * row_bytes. A page id means the
// same tokens in the pools of every layer, so rows_per_page = kPageTokens / ratio in a model.
struct PagedPool {
  std::byte* data = nullptr;
  RowFormat format = RowFormat::kF32;
  int width = 0;
  std::int64_t pages = 0;
  std::int64_t rows_per_page = 0;

  bool empty() const { return data == nullptr; }
  std::int64_t bytes() const { return pages * rows_per_page * row_bytes(format, width); }
  std::byte* row(std::int64_t page, std::int64_t r) const {
    return data + (page * rows_per_page + r) * row_bytes(format, width);
  }
  // Entry w of the sequence whose pages are these (Batch::pages_of).
  std::byte* entry(std::span<const std::int32_t> pages_of_sequence, std::int64_t w) const {
    return row(pages_of_sequence[static_cast<std::size_t>(w / rows_per_page)], w % rows_per_page);
  }
};

// A contract check of every op that touches entries: each segment's table reaches the entries that its last row closes, and
// names pages of the pool.
void check_pages(const PagedPool& pool, const Batch& batch, int ratio);

// Open compressor state: the projections of recent tokens, position p in row p % ring of its slot,
// so that going back k tokens only moves a length. ring >= 2 * ratio (overlapping) or ratio, plus
// kDraftSlack.
struct StatePool {
  float* values = nullptr;  // [slots, ring, width] c = wkv x
  float* gates = nullptr;   // [slots, ring, width] z = wgate x + ape[position mod ratio]
  std::int64_t slots = 0;
  std::int64_t ring = 0;
  int width = 0;

  bool empty() const { return values == nullptr; }
  std::int64_t bytes() const {
    return 2 * slots * ring * width * static_cast<std::int64_t>(sizeof(float));
  }
  std::int64_t offset(std::int64_t slot, std::int64_t position) const {
    return (slot * ring + position % ring) * width;
  }
};

}  // namespace nibble::ops
