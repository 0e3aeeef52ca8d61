#include "sched/sequence_cache.h"

#include <algorithm>

#include "base/check.h"
#include "ops/batch.h"

namespace nibble::sched {
namespace {

using ops::kPageTokens;

// A shorter prefix is computed sooner than it is looked up and restored.
constexpr int kLeastTokens = 16;
// In a long prompt, a place to go on from every so many tokens.
constexpr int kRegularTokens = 16 * kPageTokens;

}  // namespace

SequenceCache::SequenceCache(engine::StepModel& model, std::int64_t snapshot_bytes,
                             std::int64_t host_bytes)
    : model_(model),
      sharing_(snapshot_bytes > 0),
      pool_(model.limits().pages),
      prefixes_(pool_, snapshot_bytes,
                {host_bytes, [&model](kv::PageId page) { return model.save_page(page); },
                 [&model](kv::PageId page, std::span<const std::byte> bytes) {
                   model.restore_page(page, bytes);
                 }}) {}

int SequenceCache::pages_for(int tokens) {
  return (tokens + kPageTokens - 1) / kPageTokens;
}

bool SequenceCache::make_room(int pages) {
  if (pool_.free() + prefixes_.evictable_pages() < pages) return false;
  while (pool_.free() < pages) prefixes_.evict_page();
  return true;
}

bool SequenceCache::start(Sequence& s, int reserve, int leave) {
  NIBBLE_CHECK(s.pages.empty() && s.slot >= 0, "{} pages, slot {}", s.pages.size(), s.slot);
  // Whoever wants the prompt's log-probabilities needs every row of it.
  const bool lookup = sharing_ && !s.request.prompt_logprobs;
  kv::PrefixCache::Match match;
  if (lookup) match = prefixes_.match(s.request.cache_salt, s.tokens, s.length() - 1);
  const int shared = static_cast<int>(match.pages.size()), own = pages_for(reserve) - shared;
  const auto away = static_cast<int>(std::count(match.pages.begin(), match.pages.end(), -1));
  if (!make_room(own + away + leave)) {
    prefixes_.release(match.lease);
    return false;
  }
  s.pages = std::move(match.pages);
  s.lease = match.lease;
  prefixes_.load(s.lease, s.pages);
  for (int i = 0; i < own; ++i) s.pages.push_back(pool_.take(kv::PageOwner::kSequence));
  s.device_len = match.position;
  s.drafter_from = 0;
  if (match.position > 0) {
    const bool open = match.position % kPageTokens != 0;
    model_.restore(s.slot, match.position, open ? s.pages[static_cast<std::size_t>(shared)] : -1,
                   match.snapshot);
  }
  plan_snapshots(s, match.shared);
  return true;
}

void SequenceCache::plan_snapshots(Sequence& s, int shared) {
  s.keep_at.clear();
  if (!sharing_) return;
  const int end = s.prompt_len() - 1;
  // Where this prompt leaves what is known: the next one that shares as much can go on from there.
  const bool branches = shared >= s.device_len + kLeastTokens && shared < end;
  if (branches) s.keep_at.push_back(shared);
  for (int at = (s.device_len / kRegularTokens + 1) * kRegularTokens; at < end;
       at += kRegularTokens)
    if (!branches || at != shared) s.keep_at.push_back(at);
  std::sort(s.keep_at.begin(), s.keep_at.end());
}

bool SequenceCache::grow(Sequence& s, int tokens) {
  const int more = pages_for(tokens) - static_cast<int>(s.pages.size());
  if (more <= 0) return true;
  if (!make_room(more)) return false;
  for (int i = 0; i < more; ++i) s.pages.push_back(pool_.take(kv::PageOwner::kSequence));
  return true;
}

void SequenceCache::keep(Sequence& s, int position) {
  if (!sharing_ || position < kLeastTokens) return;
  const std::span<const TokenId> tokens(s.tokens.data(), static_cast<std::size_t>(position));
  if (prefixes_.holds(s.request.cache_salt, tokens)) return;
  const auto full = static_cast<std::size_t>(position / kPageTokens);
  const kv::PageId open = position % kPageTokens != 0 ? s.pages[full] : -1;
  prefixes_.insert(s.request.cache_salt, tokens, std::span(s.pages).first(full), s.lease,
                   model_.save(s.slot, position, open));
}

void SequenceCache::release(Sequence& s) {
  const auto leased = static_cast<std::size_t>(kv::PrefixCache::leased_pages(s.lease));
  for (std::size_t i = leased; i < s.pages.size(); ++i)
    pool_.give_back(s.pages[i], kv::PageOwner::kSequence);
  prefixes_.release(s.lease);
  s.pages.clear();
  s.keep_at.clear();
  s.drafts.clear();
  s.device_len = 0;
  s.slot = -1;
  s.reserved = false;
}

}  // namespace nibble::sched
