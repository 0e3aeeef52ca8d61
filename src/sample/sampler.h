// From logits to a token.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "nibble/status.h"
#include "nibble/types.h"
#include "sample/token_counts.h"

namespace nibble::sample {

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

// The seed that choice `index` (0, 1, ...) of a request with this seed draws with. Choice 0 has the request's own; the others
// have the outputs of splitmix64 started there: different ones for each index, and random numbers as unrelated as those of
// any two seeds.
std::uint64_t choice_seed(std::uint64_t seed, int index);

// The token at draw.position of its sequence, from the logits [vocabulary] of the row before it. A
// function of its arguments: a drafted token counts as the same token generated, so drawing position
// after position along a draft gives what drawing without one gives.
//
// In this order:
//   1. `allowed`: the others become -inf
//   2. repetition_penalty, for tokens of the prompt and generated ones
//   3. frequency_penalty, then presence_penalty, for generated ones
//   4. logit_bias, where -100 and less is -inf
//   5. temperature 0: the largest, the lowest id of equals, and no more of this list
//   6. softmax(logits / temperature)
//   7. min_p: at least that share of the most likely token's probability
//   8. top_k: the most likely; ties to the lower id
//   9. top_p: of what is left, the shortest prefix of the most likely (ties to the lower id) with that
//      share of the mass
//  10. the inverse of the distribution function at uniform(seed, position), tokens in order of falling
//      probability
// vLLM cuts in the order of 7 to 9 and adds the bias before the penalties, SGLang after. With min_p and
// top_p together SGLang applies min_p last.
//
// The log-probabilities are of softmax(logits): the model's distribution before all of this.
//
// Errors, of this row alone:
//   kInternal         a logit is NaN or +inf, or all are -inf: the model's output is broken
//   kInvalidArgument  the request leaves no token to draw, or its penalties overflow a logit, or
//                     logit_bias names a token outside the vocabulary
// Scratch is a thread's own, about twice the row, and kept.
Result<GeneratedToken> draw(std::span<const float> logits, const Draw& draw);

// Whether draw() of a row that is not broken is the lowest id of the largest logit and nothing else, so that whoever knows that
// id needs no logits.
bool is_argmax(const Draw& draw);

// Natural log-probabilities of softmax(logits): the chosen token's, and the `count` most likely,
// best first (ties to the lower id). Sums in double, in an order fixed by the size of the vocabulary. A logit of -inf
// is not among the most likely.
struct Logprobs {
  float chosen = 0.0f;
  std::vector<TokenLogprob> top;
};
Logprobs logprobs(std::span<const float> logits, TokenId chosen, int count);

}  // namespace nibble::sample
