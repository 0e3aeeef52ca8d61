// From logits to a token.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "nibble/status.h"
#include "nibble/types.h"

namespace nibble::sample {

// How often each token stands in a sequence: what penalties are computed from.
class TokenCounts;

// One token to draw. Borrowed for the call.
struct Draw {
  const SamplingParams* params = nullptr;
  std::uint64_t position = 0;             // of the token drawn
  const TokenCounts* seen = nullptr;      // tokens before it; may be null without penalties
  std::span<const TokenId> drafted = {};  // tokens before it that `seen` does not hold yet
  std::span<const std::uint64_t> allowed =
      {};  // bit i of word i / 64: token i may be drawn; empty: all
};

// Uniform in [0, 1) with 53 random bits: a function of (seed, position) and of nothing else, so
// that a token does not depend on the batch, on drafting, or on how often a step was repeated.
double uniform(std::uint64_t seed, std::uint64_t position);

// The token at `position` of its sequence. Greedy at temperature 0 (ties to the lower id).
// Otherwise softmax(logits / temperature), cut to the smallest set of most likely tokens whose mass
// reaches top_p (ties to the lower id), and the inverse of its distribution function, tokens in
// order of falling probability. kInternal when a logit is NaN or all are -inf.
Result<TokenId> sample(std::span<const float> logits, const SamplingParams& params,
                       std::uint64_t position);

// Natural log-probabilities of softmax(logits): the chosen token's, and the `count` most likely,
// best first (ties to the lower id). Sums in double, in order of ids.
struct Logprobs {
  float chosen = 0.0f;
  std::vector<TokenLogprob> top;
};
Logprobs logprobs(std::span<const float> logits, TokenId chosen, int count);

}  // namespace nibble::sample
