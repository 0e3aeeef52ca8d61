// Cached rows of one layer: window rows, compressed entries or index keys, for every slot.
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

#include "ops/numerics.h"

namespace nibble::ops {

inline constexpr int kRopeChannels = 64;   // kept in bf16 by kFp8Nope
inline constexpr int kFp8RowBlock = 64;    // channels a scale in kFp8Nope
inline constexpr int kFp4IndexBlock = 32;  // channels a scale in kFp4Index

std::int64_t row_bytes(RowFormat format, int width);

// Row r of slot s starts at data + (s * rows_per_slot + r) * row_bytes. Memory belongs to the
// backend.
//   window rows:         position p is row p % rows_per_slot (a ring)
//   entries, index keys: entry w is row w, w < rows_per_slot
struct RowPool {
  std::byte* data = nullptr;
  RowFormat format = RowFormat::kF32;
  int width = 0;
  std::int64_t slots = 0;
  std::int64_t rows_per_slot = 0;

  bool empty() const { return data == nullptr; }
  std::int64_t bytes() const { return slots * rows_per_slot * row_bytes(format, width); }
  std::byte* row(std::int64_t slot, std::int64_t r) const {
    return data + (slot * rows_per_slot + r) * row_bytes(format, width);
  }
};

// Open compressor state: the projections of recent tokens, position p in row p % ring of its slot,
// so that going back k tokens only moves a length. ring >= 2 * ratio (overlapping) or ratio, plus
// the rows of the largest step.
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
