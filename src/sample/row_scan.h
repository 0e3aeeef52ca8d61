// Passes over a whole row of logits: the only work of a draw that grows with the vocabulary.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace nibble::sample {

struct RowRange {
  float top = 0.0f;     // largest
  float lowest = 0.0f;  // smallest above -inf; +inf when there is none
  bool nan = false;     // any; the other two then mean nothing
};
RowRange row_range(std::span<const float> row);

// The first index from `from` on with a value of at least `floor`; row.size() when there is none.
std::size_t next_at_least(std::span<const float> row, std::size_t from, float floor);
std::size_t count_at_least(std::span<const float> row, float floor);

// Sum of e^(row[i] - top), in double, eight interleaved partial sums. e^x here is within 2e-12 of it
// for x in [-700, 0], that of -700 below, and 1 at 0.
double exp_sum(std::span<const float> row, float top);

// Rows cut into buckets of falling logit.
inline constexpr std::size_t kBuckets = 2048;
struct BucketRule {
  float top = 0.0f;
  float floor = 0.0f;  // lower logits stand in no bucket
  float scale = 0.0f;  // buckets per unit of logit, >= 0 and finite
  double inverse_temperature = 1.0;
};
// bucket[i]: min((top - row[i]) * scale, kBuckets - 1), or kBuckets below the floor; never falls when
// a logit does. mass[b]: sum of e^((row[i] - top) * inverse_temperature), as above, over bucket b in
// order of ids; the last one is that of the tokens below the floor.
void fill_buckets(std::span<const float> row, const BucketRule& rule,
                  std::span<std::uint16_t> bucket, std::array<double, kBuckets + 1>& mass);

}  // namespace nibble::sample
