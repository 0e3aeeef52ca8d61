#include "sample/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"

namespace nibble::sample {
namespace {

// The finaliser of splitmix64 (Steele, Lea, Flood 2014): a bijection that mixes every input bit
// into every output bit.
std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// Index of the largest logit, the lowest one of equals; -1 when there is a NaN or nothing above
// -inf.
std::int64_t argmax(std::span<const float> logits) {
  std::int64_t best = -1;
  float top = -INFINITY;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i])) return -1;
    if (logits[i] > top) {
      top = logits[i];
      best = static_cast<std::int64_t>(i);
    }
  }
  return best;
}

// The most likely `count` ids, best first, ties to the lower id.
std::vector<TokenId> best_ids(std::span<const float> logits, std::size_t count) {
  std::vector<TokenId> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  count = std::min(count, ids.size());
  std::partial_sort(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count), ids.end(),
                    [&](TokenId a, TokenId b) {
                      const float x = logits[static_cast<std::size_t>(a)],
                                  y = logits[static_cast<std::size_t>(b)];
                      return x != y ? x > y : a < b;
                    });
  ids.resize(count);
  return ids;
}

}  // namespace

double uniform(std::uint64_t seed, std::uint64_t position) {
  const std::uint64_t bits = mix(mix(seed + 0x9E3779B97F4A7C15u) + position * 0x9E3779B97F4A7C15u);
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

Result<TokenId> sample(std::span<const float> logits, const SamplingParams& params,
                       std::uint64_t position) {
  const std::int64_t best = argmax(logits);
  if (best < 0)
    return Status{StatusCode::kInternal, "the model's output holds a NaN or no finite logit", ""};
  if (params.temperature == 0.0f) return static_cast<TokenId>(best);
  const double top = logits[static_cast<std::size_t>(best)];
  std::vector<TokenId> ids = best_ids(logits, logits.size());
  std::vector<double> cumulative;
  cumulative.reserve(ids.size());
  double mass = 0.0;
  for (const TokenId id : ids) {
    mass += std::exp((logits[static_cast<std::size_t>(id)] - top) / params.temperature);
    cumulative.push_back(mass);
  }
  // The nucleus: the shortest prefix whose share of the mass is at least top_p; never empty.
  const auto cut = std::lower_bound(cumulative.begin(), cumulative.end(), params.top_p * mass);
  const std::size_t kept =
      std::min(static_cast<std::size_t>(cut - cumulative.begin()) + 1, cumulative.size());
  const double target = uniform(params.seed, position) * cumulative[kept - 1];
  const auto chosen = std::upper_bound(
      cumulative.begin(), cumulative.begin() + static_cast<std::ptrdiff_t>(kept), target);
  const std::size_t index =
      std::min(static_cast<std::size_t>(chosen - cumulative.begin()), kept - 1);
  return ids[index];
}

Logprobs logprobs(std::span<const float> logits, TokenId chosen, int count) {
  NIBBLE_CHECK(chosen >= 0 && static_cast<std::size_t>(chosen) < logits.size(), "token {} of {}",
               chosen, logits.size());
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(logit - top);
  const double log_sum = top + std::log(sum);
  const auto logprob = [&](TokenId id) {
    return static_cast<float>(logits[static_cast<std::size_t>(id)] - log_sum);
  };
  Logprobs result{logprob(chosen), {}};
  for (const TokenId id : best_ids(logits, static_cast<std::size_t>(std::max(count, 0))))
    result.top.push_back({id, logprob(id)});
  return result;
}

}  // namespace nibble::sample
