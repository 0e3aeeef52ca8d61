// Cosines and sines of a step's positions, computed once for all heads, ops and layers that share a
// table.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/batch.h"
#include "ops/rope.h"

namespace nibble::ops::cpu {

// One position, a value a channel: pair i is (cos, cos), (-sin, sin) and (sin, -sin), so that
// x * cos + swap(x) * sin rotates and x * cos + swap(x) * inverse_sin rotates back.
struct RopeRow {
  const float* cos;
  const float* sin;
  const float* inverse_sin;
};

// cos, sin, inverse_sin [2 * pairs] one after the other at `out`.
void fill_rope_row(const RopeTable& rope, std::int64_t position, float* out);
RopeRow rope_row_at(const float* filled, int pairs);

class RopeAngles {
 public:
  // For every row of the batch. The table's frequencies must not change while this object lives.
  // The result is valid until the fourth next call with another table or batch.
  class Rows {
   public:
    RopeRow row(std::int64_t n) const { return rope_row_at(values + n * 6L * pairs, pairs); }
    const float* values = nullptr;
    int pairs = 0;
  };
  Rows of(const RopeTable& rope, const Batch& batch);

 private:
  struct Known {
    const float* inv_freq = nullptr;
    int pairs = 0;
    std::vector<Segment> segments;
    std::vector<float> values;
  };
  static constexpr int kKnown = 4;
  Known known_[kKnown];
  int next_ = 0;
};

}  // namespace nibble::ops::cpu
