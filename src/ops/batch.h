// The rows of one step: tokens of one or more sequences, each sequence's tokens next to each other.
#pragma once

#include <cstdint>
#include <span>

#include "nibble/types.h"

namespace nibble::ops {

// `rows` tokens of the sequence in cache slot `slot`, at positions position .. position + rows - 1,
// in rows first_row .. first_row + rows - 1 of every activation. A slot occurs at most once in a
// batch.
// Its cache pages are pages[first_page], pages[first_page + 1], ... of the batch: page i holds what is kept of the tokens
// i * kPageTokens .. (i + 1) * kPageTokens - 1.
struct Segment {
  std::int32_t first_row = 0;
  std::int32_t rows = 0;
  std::int32_t slot = 0;
  std::int32_t position = 0;
  std::int32_t first_page = 0;
};

inline constexpr int kPageTokens = 256;  // a multiple of every compression ratio

// The id of a padding row: see Backend::run_pass.
inline constexpr TokenId kPaddingId = -1;

// Borrowed for the length of one step. Segments cover the rows in order, without gaps, up to padding rows, which belong to no
// segment.
struct Batch {
  std::span<const TokenId> ids;  // [rows]
  std::span<const Segment> segments;
  std::span<const std::int32_t> pages = {};

  std::int64_t rows() const { return static_cast<std::int64_t>(ids.size()); }
  std::span<const std::int32_t> pages_of(const Segment& segment) const {
    return pages.subspan(static_cast<std::size_t>(segment.first_page));
  }
};

}  // namespace nibble::ops
