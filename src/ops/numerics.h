// What an op rounds besides the weights. Chosen once, at load; every op reads it from its backend.
#pragma once

#include <cstdint>

namespace nibble::ops {

// How a cached row is stored. Byte layouts: src/ops/row_pool.h.
enum class RowFormat : std::uint8_t {
  kF32,       // 4 bytes a channel
  kBf16,      // 2 bytes a channel
  kFp8Nope,   // all but the last 64 channels E4M3 in blocks of 64, the last 64 bf16
  kFp4Index,  // index keys: Hadamard-rotated, E2M1 in blocks of 32
};

struct Numerics {
  // false: "exact", fp32 activations. true: "release", the rounding points of deepseek-v4.md 6.5:
  // activations live on the bf16 grid, and inputs of the quantised matrices on the FP8 grid of 6.2.
  bool release = false;
  RowFormat kv_rows = RowFormat::kF32;
  RowFormat index_rows = RowFormat::kF32;
};

}  // namespace nibble::ops
