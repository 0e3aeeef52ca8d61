// Plain copies: rows picked out of an activation, pieces of the backend's memory to and from the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/view.h"

namespace nibble::ops {

// y[i] = x[rows[i]]. y does not overlap x. Rows may repeat; no rows: nothing to do.
struct GatherRowsArgs {
  tensor::View x;                      // [n, ...] F32
  std::span<const std::int32_t> rows;  // [m], on the host, borrowed for the call
  tensor::View y;                      // out [m, ...] F32
};

// A piece of the backend's memory.
struct ByteRange {
  std::byte* data = nullptr;
  std::int64_t bytes = 0;
};

// The sum of their bytes.
std::int64_t total_bytes(std::span<const ByteRange> ranges);

// A contract check: x and y have rows alike, y as many as are named, and those are rows of x.
void check_gather(const GatherRowsArgs& args);

}  // namespace nibble::ops
