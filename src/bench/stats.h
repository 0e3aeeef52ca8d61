// Many latencies in five numbers.
#pragma once

#include <vector>

namespace nibble::bench {

struct Sample {
  double value = 0.0;
  double weight = 1.0;  // > 0: how many tokens or requests the value stands for
};

struct Summary {
  double count = 0.0;  // sum of the weights
  double mean = 0.0;
  double p50 = 0.0;
  double p95 = 0.0;
  double p99 = 0.0;
  double max = 0.0;
};

// Percentiles by nearest rank: the smallest value that at least p % of the weight does not exceed, so always one that was
// measured. All zero without samples.
Summary summarize(std::vector<Sample> samples);

}  // namespace nibble::bench
