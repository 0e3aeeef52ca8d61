#include "bench/stats.h"

#include <algorithm>

namespace nibble::bench {

Summary summarize(std::vector<Sample> samples) {
  Summary summary;
  if (samples.empty()) return summary;
  std::sort(samples.begin(), samples.end(),
            [](const Sample& a, const Sample& b) { return a.value < b.value; });
  double sum = 0.0;
  for (const Sample& sample : samples) {
    summary.count += sample.weight;
    sum += sample.value * sample.weight;
  }
  summary.mean = sum / summary.count;
  summary.max = samples.back().value;
  // Weights that are shares of a token add up with rounding: a hair below the rank counts as the rank.
  constexpr double kSlack = 1e-9;
  const auto percentile = [&](double share) {
    double seen = 0.0;
    for (const Sample& sample : samples) {
      seen += sample.weight;
      if (seen >= summary.count * (share - kSlack)) return sample.value;
    }
    return summary.max;
  };
  summary.p50 = percentile(0.50);
  summary.p95 = percentile(0.95);
  summary.p99 = percentile(0.99);
  return summary;
}

}  // namespace nibble::bench
