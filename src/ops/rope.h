// Rotary positions: a table of inverse frequencies shared by every op that rotates.
#pragma once

#include <cstdint>

namespace nibble::ops {

// The last 2 * pairs channels of a vector are rotated in interleaved pairs by position *
// inv_freq[i]; the angle is the fp32 product of fp32 position and fp32 frequency
// (deepseek-v4.md 3.2).
struct RopeTable {
  const float* inv_freq = nullptr;  // [pairs], in the backend's memory
  int pairs = 0;
};

}  // namespace nibble::ops
