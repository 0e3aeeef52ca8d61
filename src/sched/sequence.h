// One request in progress: its tokens, how many of them the cache holds, and what its drafter
// proposes.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "kv/prefix_cache.h"
#include "nibble/types.h"
#include "sample/token_counts.h"

namespace nibble::sched {

// Owned by the scheduler thread. The draft belongs to the sequence, never to a batch row.
struct Sequence {
  Sequence(Request r, std::uint64_t arrival_number)
      : request(std::move(r)), tokens(request.prompt), arrival(arrival_number) {
    usage.prompt_tokens = static_cast<int>(tokens.size());
    if (sample::uses_counts(request.sampling)) seen.add_prompt(tokens);
  }

  int prompt_len() const { return static_cast<int>(request.prompt.size()); }
  int length() const { return static_cast<int>(tokens.size()); }
  // Known tokens whose rows are not in the cache: the prompt's at first, one while decoding, all of them after a preemption.
  int to_compute() const { return length() - device_len; }
  bool decoding() const { return to_compute() == 1 && device_len > 0; }
  int tokens_left() const { return request.sampling.max_tokens - usage.completion_tokens; }

  Request request;
  std::vector<TokenId> tokens;  // prompt, then generated
  sample::TokenCounts seen;     // of `tokens`, when a penalty asks for them
  std::uint64_t arrival;        // the lower came first
  int preemptions = 0;
  Usage usage;
  std::vector<GeneratedToken> prompt_logprobs;

  // While it runs.
  int slot = -1;
  int device_len = 0;             // tokens whose rows the cache holds
  std::vector<kv::PageId> pages;  // page i: tokens [i * kPageTokens, (i + 1) * kPageTokens)
  kv::PrefixCache::Lease lease;   // on the first of them
  bool reserved = false;          // has pages for all it may ever need
  std::vector<int>
      keep_at;  // positions ahead where a snapshot is due, ascending; a chunk ends there
  std::vector<TokenId> drafts;  // proposals for positions length(), length() + 1, ...
  int drafter_from = 0;         // the drafter has seen every token from here to device_len
};

}  // namespace nibble::sched
