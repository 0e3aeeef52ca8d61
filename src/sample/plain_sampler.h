// The specification of sampler.h's `draw` in plain loops: sorts everything, allocates freely. For tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include "sample/sampler.h"

namespace nibble::sample {

// What was seen, as a list: prompt, then generated, drafted tokens included.
struct PlainSequence {
  std::vector<TokenId> prompt, generated;
};

inline std::vector<float> plain_adjusted(std::span<const float> logits,
                                         const SamplingParams& params, const PlainSequence& seen,
                                         const std::vector<bool>& allowed) {
  std::vector<float> row(logits.begin(), logits.end());
  for (std::size_t i = 0; i < row.size(); ++i)
    if (!allowed.empty() && !allowed[i]) row[i] = -INFINITY;
  std::map<TokenId, int> any, generated;
  for (const TokenId token : seen.prompt) ++any[token];
  for (const TokenId token : seen.generated) ++any[token], ++generated[token];
  for (const auto& [token, count] : any) {
    float& logit = row[static_cast<std::size_t>(token)];
    logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
  }
  for (const auto& [token, count] : generated) {
    float& logit = row[static_cast<std::size_t>(token)];
    logit -= params.frequency_penalty * static_cast<float>(count);
    logit -= params.presence_penalty;
  }
  for (const auto& [token, bias] : params.logit_bias) {
    float& logit = row[static_cast<std::size_t>(token)];
    logit = bias <= -100 ? -INFINITY : logit + bias;
  }
  return row;
}

// Nothing when no token may be drawn.
inline std::optional<TokenId> plain_draw(std::span<const float> logits,
                                         const SamplingParams& params, std::uint64_t position,
                                         const PlainSequence& seen = {},
                                         const std::vector<bool>& allowed = {}) {
  const std::vector<float> row = plain_adjusted(logits, params, seen, allowed);
  const auto at = [&](TokenId id) { return row[static_cast<std::size_t>(id)]; };
  std::vector<TokenId> ids(row.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(), [&](TokenId a, TokenId b) { return at(a) > at(b); });
  if (at(ids[0]) == -INFINITY) return std::nullopt;
  if (params.temperature == 0.0f) return ids[0];
  const double top = at(ids[0]);
  std::vector<double> weights;
  for (const TokenId id : ids) weights.push_back(std::exp((at(id) - top) / params.temperature));
  std::size_t kept = 0;
  while (kept < weights.size() && weights[kept] >= params.min_p) ++kept;
  if (params.top_k > 0) kept = std::min(kept, static_cast<std::size_t>(params.top_k));
  std::vector<double> sums(kept);
  std::partial_sum(weights.begin(), weights.begin() + static_cast<std::ptrdiff_t>(kept),
                   sums.begin());
  std::size_t last = 0;
  while (last + 1 < kept && sums[last] < params.top_p * sums[kept - 1]) ++last;
  const double target = uniform(params.seed, position) * sums[last];
  std::size_t chosen = 0;
  while (chosen < last && sums[chosen] <= target) ++chosen;
  return ids[chosen];
}

}  // namespace nibble::sample
