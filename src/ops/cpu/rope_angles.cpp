#include "ops/cpu/rope_angles.h"

#include <algorithm>
#include <cmath>

namespace nibble::ops::cpu {
namespace {

bool same_positions(std::span<const Segment> a, std::span<const Segment> b) {
  return std::ranges::equal(a, b, [](const Segment& x, const Segment& y) {
    return x.first_row == y.first_row && x.rows == y.rows && x.position == y.position;
  });
}

}  // namespace

void fill_rope_row(const RopeTable& rope, std::int64_t position, float* out) {
  float* sin = out + 2L * rope.pairs;
  float* inverse_sin = sin + 2L * rope.pairs;
  for (std::int64_t i = 0; i < rope.pairs; ++i) {
    const float angle = static_cast<float>(position) * rope.inv_freq[i];
    const float c = std::cos(angle), s = std::sin(angle);
    out[2 * i] = out[2 * i + 1] = c;
    sin[2 * i] = inverse_sin[2 * i + 1] = -s;
    sin[2 * i + 1] = inverse_sin[2 * i] = s;
  }
}

RopeRow rope_row_at(const float* filled, int pairs) {
  return {filled, filled + 2L * pairs, filled + 4L * pairs};
}

RopeAngles::Rows RopeAngles::of(const RopeTable& rope, const Batch& batch) {
  for (const Known& known : known_)
    if (known.inv_freq == rope.inv_freq && known.pairs == rope.pairs &&
        same_positions(known.segments, batch.segments)) {
      Rows rows;
      rows.values = known.values.data();
      rows.pairs = rope.pairs;
      return rows;
    }
  Known& known = known_[next_];
  next_ = (next_ + 1) % kKnown;
  known.inv_freq = rope.inv_freq;
  known.pairs = rope.pairs;
  known.segments.assign(batch.segments.begin(), batch.segments.end());
  known.values.resize(static_cast<std::size_t>(batch.rows() * 6L * rope.pairs));
  for (const Segment& seg : batch.segments)
    for (std::int64_t i = 0; i < seg.rows; ++i)
      fill_rope_row(rope, seg.position + i,
                    known.values.data() + (seg.first_row + i) * 6L * rope.pairs);
  Rows rows;
  rows.values = known.values.data();
  rows.pairs = rope.pairs;
  return rows;
}

}  // namespace nibble::ops::cpu
