// One request in progress: its tokens, how many of them the cache holds, and what its drafter
// proposes.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "nibble/types.h"
#include "sample/token_counts.h"

namespace nibble::sched {

// Owned by the scheduler thread. The draft belongs to the sequence, never to a batch row.
struct Sequence {
  explicit Sequence(Request r) : request(std::move(r)), tokens(request.prompt) {
    usage.prompt_tokens = static_cast<int>(tokens.size());
    if (sample::uses_counts(request.sampling)) seen.add_prompt(tokens);
  }

  int prompt_len() const { return static_cast<int>(request.prompt.size()); }
  bool prefilling() const { return device_len < prompt_len(); }
  int tokens_left() const { return request.sampling.max_tokens - usage.completion_tokens; }

  Request request;
  std::vector<TokenId> tokens;  // prompt, then generated
  sample::TokenCounts seen;     // of `tokens`, when a penalty asks for them
  int device_len = 0;           // tokens whose rows the cache holds
  int slot = 0;
  std::optional<TokenId> draft;  // proposal for position tokens.size()
  std::vector<GeneratedToken> prompt_logprobs;
  Usage usage;
};

}  // namespace nibble::sched
