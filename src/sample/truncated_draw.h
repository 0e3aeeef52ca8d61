// The draw itself: inverse distribution function over tokens in order of falling logit, without sorting a vocabulary.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "nibble/types.h"
#include "sample/row_scan.h"

namespace nibble::sample {

struct Ranked {
  float logit = 0.0f;
  TokenId token = 0;
  // Best first: falling logit, ties by rising id.
  bool operator<(const Ranked& other) const {
    return logit != other.logit ? logit > other.logit : token < other.token;
  }
};

// Scratch of one thread, kept between draws so that they do not allocate.
class TruncatedDraw {
 public:
  // The first `count` tokens in order of falling logit among those of at least `floor` (ties by rising
  // id); fewer when there are fewer. -inf and NaN are never among them. Valid until the next call.
  std::span<const Ranked> best(std::span<const float> row, std::size_t count, float floor);

  // What `from_sorted` draws from a whole row, and the same bits; `range` is the row's, without a NaN,
  // and its top is finite. `u` in [0, 1).
  TokenId draw(std::span<const float> row, const RowRange& range, const SamplingParams& params,
               double u);

  // The specification, once the tokens are sorted: weights exp((logit - top) / temperature), summed in
  // order; cut to the shortest prefix with top_p of the mass; the first token whose sum exceeds u times
  // what is left.
  TokenId from_sorted(std::span<const Ranked> sorted, const SamplingParams& params, double u);

 private:
  // A token by where the sum of weights passes a target; its own sum is `sum`.
  struct Place {
    TokenId token = 0;
    double sum = 0.0;
  };

  std::optional<TokenId> from_buckets(std::span<const float> row, const RowRange& range,
                                      float floor, const SamplingParams& params, double u);
  // The first token whose sum passes `target`; nothing when one within `error` of it could be another.
  std::optional<Place> find(std::span<const float> row, const RowRange& range, double temperature,
                            double target, double error);

  std::vector<Ranked> ranked_;
  std::vector<double> sums_;
  std::vector<std::uint16_t> bucket_;      // of each token
  std::array<double, kBuckets + 1> mass_;  // of each bucket
};

}  // namespace nibble::sample
