#include "model/rope_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace nibble::model {

std::vector<float> inverse_frequencies(const RopeConfig& rope, int rope_dim) {
  const int pairs = rope_dim / 2;
  std::vector<float> frequencies(static_cast<std::size_t>(pairs));
  for (int i = 0; i < pairs; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(rope_dim);
    frequencies[static_cast<std::size_t>(i)] =
        1.0f / std::pow(static_cast<float>(rope.theta), exponent);
  }
  if (!rope.yarn) return frequencies;
  const Yarn& yarn = *rope.yarn;
  // The channel that makes `rotations` turns within the original context.
  const auto channel = [&](double rotations) {
    return rope_dim * std::log(yarn.original_max_positions / (rotations * 2.0 * std::numbers::pi)) /
           (2.0 * std::log(rope.theta));
  };
  // Kept inside the table, as a context so short that no channel qualifies would otherwise leave
  // it.
  const double low = std::max(std::floor(channel(yarn.beta_fast)), 0.0);
  double high = std::min(std::ceil(channel(yarn.beta_slow)), static_cast<double>(rope_dim - 1));
  if (high == low) high += 0.001;
  for (int i = 0; i < pairs; ++i) {
    float& f = frequencies[static_cast<std::size_t>(i)];
    const float ramp = std::clamp(
        (static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low), 0.0f,
        1.0f);
    f = f / static_cast<float>(yarn.factor) * ramp + f * (1.0f - ramp);
  }
  return frequencies;
}

}  // namespace nibble::model
