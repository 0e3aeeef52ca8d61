#include "sample/token_counts.h"

#include "base/check.h"

namespace nibble::sample {

void TokenCounts::add_prompt(std::span<const TokenId> tokens) {
  for (const TokenId token : tokens) ++entry(token).prompt;
}

void TokenCounts::add_generated(TokenId token) {
  ++entry(token).generated;
}

void TokenCounts::remove_generated(TokenId token) {
  Entry& found = entry(token);
  NIBBLE_CHECK(found.generated > 0, "token {} was generated {} times", token, found.generated);
  --found.generated;
}

TokenCounts::Entry TokenCounts::find(TokenId token) const {
  const std::uint32_t index = slots_.empty() ? 0 : slots_[slot_of(token)];
  return index == 0 ? Entry{token, 0, 0} : entries_[index - 1];
}

// The token's slot, or the free one where it belongs.
std::size_t TokenCounts::slot_of(TokenId token) const {
  const std::size_t mask = slots_.size() - 1;
  // Fibonacci hashing: neighbouring ids, which scripts share, land apart.
  std::size_t slot = (static_cast<std::uint32_t>(token) * 0x9E3779B97F4A7C15u >> 32) & mask;
  while (slots_[slot] != 0 && entries_[slots_[slot] - 1].token != token) slot = (slot + 1) & mask;
  return slot;
}

TokenCounts::Entry& TokenCounts::entry(TokenId token) {
  if (2 * (entries_.size() + 1) > slots_.size()) grow();
  std::uint32_t& index = slots_[slot_of(token)];
  if (index == 0) {
    entries_.push_back({token, 0, 0});
    index = static_cast<std::uint32_t>(entries_.size());
  }
  return entries_[index - 1];
}

void TokenCounts::grow() {
  slots_.assign(slots_.empty() ? 64 : 2 * slots_.size(), 0);
  for (std::size_t i = 0; i < entries_.size(); ++i)
    slots_[slot_of(entries_[i].token)] = static_cast<std::uint32_t>(i + 1);
}

}  // namespace nibble::sample
