// How often each token stands in a sequence: what penalties are computed from.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "nibble/types.h"

namespace nibble::sample {

// One sequence's; not thread-safe. Memory and the time to go through it follow the number of different
// tokens, not the vocabulary; an update is O(1) and allocates only when a table grows. A sequence needs
// one only if `uses_counts(params)`.
class TokenCounts {
 public:
  struct Entry {
    TokenId token = 0;
    std::int32_t prompt = 0;
    std::int32_t generated = 0;
  };

  void add_prompt(std::span<const TokenId> tokens);
  void add_generated(TokenId token);
  // Takes back one add_generated of the same token.
  void remove_generated(TokenId token);

  // Zero counts for a token that never stood there.
  Entry find(TokenId token) const;
  // One a token, in the order of first appearance; both counts are 0 for one that was taken back.
  std::span<const Entry> entries() const { return entries_; }

 private:
  std::size_t slot_of(TokenId token) const;
  Entry& entry(TokenId token);
  void grow();

  std::vector<Entry> entries_;
  // Open addressing with linear probing, a power of two of slots, at most half of them taken:
  // 1 + index into entries_, 0 when free.
  std::vector<std::uint32_t> slots_;
};

// Whether these parameters ask how often a token was seen.
inline bool uses_counts(const SamplingParams& params) {
  return params.repetition_penalty != 1.0f || params.frequency_penalty != 0.0f ||
         params.presence_penalty != 0.0f;
}

}  // namespace nibble::sample
