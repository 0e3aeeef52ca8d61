#include "kv/prefix_cache.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "ops/batch.h"

namespace nibble::kv {
namespace {

using ops::kPageTokens;

std::size_t common(std::span<const TokenId> a, std::span<const TokenId> b) {
  const std::size_t n = std::min(a.size(), b.size());
  return static_cast<std::size_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(n), b.begin()).first -
      a.begin());
}

// The longest key that `tokens` begins with. In lexicographic order it is the last key not above `tokens`, or else begins with
// what that one has in common with them.
template <typename Map>
typename Map::iterator longest_prefix(Map& map, std::span<const TokenId> tokens) {
  for (;;) {
    auto after = map.upper_bound(tokens);
    if (after == map.begin()) return map.end();
    const auto candidate = std::prev(after);
    const std::size_t n = common(candidate->first, tokens);
    if (n == candidate->first.size()) return candidate;
    tokens = tokens.first(n);
  }
}

// How many tokens the key that has most in common with `tokens` shares: it is a neighbour of where they would stand.
template <typename Map>
std::size_t most_common(const Map& map, std::span<const TokenId> tokens) {
  const auto after = map.lower_bound(tokens);
  std::size_t most = 0;
  if (after != map.end()) most = common(after->first, tokens);
  if (after != map.begin()) most = std::max(most, common(std::prev(after)->first, tokens));
  return most;
}

}  // namespace

bool PrefixCache::Lexicographic::operator()(std::span<const TokenId> a,
                                            std::span<const TokenId> b) const {
  return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end());
}

PrefixCache::PrefixCache(PagePool& pool, std::int64_t snapshot_bytes, HostTier host)
    : pool_(pool), budget_(snapshot_bytes), host_(std::move(host)) {}

PrefixCache::~PrefixCache() = default;

PrefixCache::Node& PrefixCache::root(const std::string& salt) {
  const auto [at, added] = roots_.try_emplace(salt);
  if (added) {
    at->second = std::make_unique<Node>();
    at->second->salt = &at->first;
  }
  return *at->second;
}

void PrefixCache::touch(Node* node) {
  for (; node->parent; node = node->parent)
    recent_nodes_.splice(recent_nodes_.begin(), recent_nodes_, node->recent);
}

void PrefixCache::take_lease(Node* node, Lease& lease) {
  lease.node_ = node->parent ? node : nullptr;
  for (; node->parent; node = node->parent)
    if (node->leases++ == 0 && node->page >= 0) --evictable_;
}

int PrefixCache::leased_pages(const Lease& lease) {
  return lease.node_ ? lease.node_->depth : 0;
}

void PrefixCache::release(Lease& lease) {
  Node* const leaf = lease.node_;
  lease.node_ = nullptr;
  if (!leaf) return;
  for (Node* node = leaf; node->parent; node = node->parent)
    if (--node->leases == 0 && node->page >= 0) ++evictable_;
  prune(leaf);
}

PrefixCache::Match PrefixCache::match(const std::string& salt, std::span<const TokenId> tokens,
                                      int most) {
  Match match;
  const auto found = roots_.find(salt);
  if (found == roots_.end()) return match;
  Node* node = found->second.get();
  Node* best = nullptr;
  for (;;) {
    const auto begin = static_cast<std::size_t>(node->depth) * kPageTokens;
    const std::span<const TokenId> rest = tokens.subspan(begin);
    if (const auto limit = static_cast<std::size_t>(std::max(most, 0)); begin <= limit) {
      const auto snapshot =
          longest_prefix(node->snapshots, rest.first(std::min(rest.size(), limit - begin)));
      if (snapshot != node->snapshots.end()) {
        best = node;
        match.position = static_cast<int>(begin + snapshot->first.size());
        match.snapshot = snapshot->second.bytes;
        recent_snapshots_.splice(recent_snapshots_.begin(), recent_snapshots_,
                                 snapshot->second.recent);
      }
    }
    match.shared = static_cast<int>(
        begin + std::max(most_common(node->children, rest), most_common(node->snapshots, rest)));
    if (rest.size() < kPageTokens) break;
    const auto child = node->children.find(rest.first(kPageTokens));
    if (child == node->children.end()) break;
    node = child->second.get();
  }
  if (!best) return match;
  match.pages.resize(static_cast<std::size_t>(best->depth));
  for (Node* at = best; at->parent; at = at->parent)
    match.pages[static_cast<std::size_t>(at->depth) - 1] = at->page;
  touch(best);
  take_lease(best, match.lease);
  return match;
}

void PrefixCache::load(const Lease& lease, std::span<PageId> pages) {
  std::vector<Node*> path(static_cast<std::size_t>(leased_pages(lease)));
  for (Node* node = lease.node_; node && node->parent; node = node->parent)
    path[static_cast<std::size_t>(node->depth) - 1] = node;
  NIBBLE_CHECK(pages.size() == path.size(), "{} pages under a lease on {}", pages.size(),
               path.size());
  for (std::size_t i = 0; i < path.size(); ++i) {
    if (path[i]->page < 0) {
      const PageId page = pool_.take(PageOwner::kPrefixCache);
      try {
        host_.restore(page, path[i]->host);
      } catch (...) {
        pool_.give_back(page, PageOwner::kPrefixCache);
        throw;
      }
      drop_host(path[i]);
      path[i]->page = page;
    }
    pages[i] = path[i]->page;
  }
}

bool PrefixCache::holds(const std::string& salt, std::span<const TokenId> tokens) {
  const auto found = roots_.find(salt);
  if (found == roots_.end()) return false;
  Node* node = found->second.get();
  while (tokens.size() >= kPageTokens) {
    const auto child = node->children.find(tokens.first(kPageTokens));
    if (child == node->children.end()) return false;
    node = child->second.get();
    tokens = tokens.subspan(kPageTokens);
  }
  const auto snapshot = node->snapshots.find(tokens);
  if (snapshot == node->snapshots.end()) return false;
  touch(node);
  recent_snapshots_.splice(recent_snapshots_.begin(), recent_snapshots_, snapshot->second.recent);
  return true;
}

PrefixCache::Node& PrefixCache::add_child(Node& parent, std::span<const TokenId> tokens,
                                          PageId page) {
  auto node = std::make_unique<Node>();
  node->parent = &parent;
  node->depth = parent.depth + 1;
  node->page = page;
  recent_nodes_.push_front(node.get());
  node->recent = recent_nodes_.begin();
  ++evictable_;
  const auto [at, added] =
      parent.children.emplace(std::vector<TokenId>(tokens.begin(), tokens.end()), std::move(node));
  at->second->key = &at->first;
  return *at->second;
}

void PrefixCache::insert(const std::string& salt, std::span<const TokenId> tokens,
                         std::span<PageId> pages, Lease& lease, std::vector<std::byte> snapshot) {
  NIBBLE_CHECK(pages.size() == tokens.size() / kPageTokens, "{} pages of {} tokens", pages.size(),
               tokens.size());
  const auto size = static_cast<std::int64_t>(snapshot.size());
  if (size > budget_) return;
  const int leased = leased_pages(lease);
  Node* node = &root(salt);
  for (std::size_t i = 0; i < pages.size(); ++i) {
    const std::span<const TokenId> key = tokens.subspan(i * kPageTokens, kPageTokens);
    const bool own = static_cast<int>(i) >= leased;
    const auto child = node->children.find(key);
    if (child != node->children.end()) {
      node = child->second.get();
      if (own && node->page < 0) {
        drop_host(node);
        pool_.hand_over(pages[i], PageOwner::kSequence, PageOwner::kPrefixCache);
        node->page = pages[i];
        if (node->leases == 0) ++evictable_;
      } else if (own) {
        pool_.give_back(pages[i], PageOwner::kSequence);
        pages[i] = node->page;
      }
    } else {
      NIBBLE_CHECK(own, "page {} is leased and not in the tree", i);
      pool_.hand_over(pages[i], PageOwner::kSequence, PageOwner::kPrefixCache);
      node = &add_child(*node, key, pages[i]);
    }
  }
  touch(node);
  Lease longer;
  take_lease(node, longer);  // before the old one goes, or its pages might
  release(lease);
  lease = longer;

  const std::span<const TokenId> tail = tokens.subspan(pages.size() * kPageTokens);
  const auto [at, added] =
      node->snapshots.try_emplace(std::vector<TokenId>(tail.begin(), tail.end()));
  if (!added) return;
  recent_snapshots_.push_front({node, &at->first});
  at->second = {std::move(snapshot), recent_snapshots_.begin()};
  bytes_ += size;
  while (bytes_ > budget_) drop_snapshot(recent_snapshots_.back());
}

void PrefixCache::drop_snapshot(SnapshotRef ref) {
  const auto at = ref.node->snapshots.find(*ref.tail);
  bytes_ -= static_cast<std::int64_t>(at->second.bytes.size());
  recent_snapshots_.erase(at->second.recent);
  ref.node->snapshots.erase(at);
  prune(ref.node);
}

void PrefixCache::prune(Node* node) {
  while (node->parent && node->leases == 0 && node->children.empty() && node->snapshots.empty()) {
    Node* const parent = node->parent;
    remove(node);
    node = parent;
  }
  if (!node->parent && node->children.empty() && node->snapshots.empty())
    roots_.erase(roots_.find(*node->salt));
}

void PrefixCache::remove(Node* node) {
  NIBBLE_CHECK(node->leases == 0 && node->children.empty(), "{} leases, {} children", node->leases,
               node->children.size());
  for (auto& [tail, snapshot] : node->snapshots) {
    bytes_ -= static_cast<std::int64_t>(snapshot.bytes.size());
    recent_snapshots_.erase(snapshot.recent);
  }
  recent_nodes_.erase(node->recent);
  if (node->page >= 0) {
    pool_.give_back(node->page, PageOwner::kPrefixCache);
    --evictable_;
  } else {
    drop_host(node);
  }
  node->parent->children.erase(node->parent->children.find(*node->key));
}

bool PrefixCache::evict_page() {
  if (evictable_ == 0) return false;
  // A node is used whenever one below it is, so below the oldest that has a page and no lease there are no pages.
  Node* const oldest =
      *std::find_if(recent_nodes_.rbegin(), recent_nodes_.rend(),
                    [](const Node* node) { return node->leases == 0 && node->page >= 0; });
  if (host_.bytes > 0) {
    try {
      oldest->host = host_.save(oldest->page);
    } catch (const std::exception& error) {
      spdlog::warn("a page was not kept in host memory: {}", error.what());
    }
  }
  if (oldest->host.empty()) {
    Node* const parent = oldest->parent;
    remove_subtree(oldest);  // without its rows nothing below can be used either
    prune(parent);
    return true;
  }
  host_bytes_ += static_cast<std::int64_t>(oldest->host.size());
  ++host_pages_;
  pool_.give_back(std::exchange(oldest->page, -1), PageOwner::kPrefixCache);
  --evictable_;
  trim_host();
  return true;
}

void PrefixCache::remove_subtree(Node* node) {
  while (!node->children.empty()) remove_subtree(node->children.begin()->second.get());
  remove(node);
}

void PrefixCache::drop_host(Node* node) {
  host_bytes_ -= static_cast<std::int64_t>(node->host.size());
  --host_pages_;
  node->host = {};
}

// The oldest first: of those without a lease it is a leaf.
void PrefixCache::trim_host() {
  while (host_bytes_ > host_.bytes) {
    const auto oldest =
        std::find_if(recent_nodes_.rbegin(), recent_nodes_.rend(),
                     [](const Node* node) { return node->leases == 0 && node->page < 0; });
    if (oldest == recent_nodes_.rend()) return;  // all on their way back
    Node* const parent = (*oldest)->parent;
    remove(*oldest);
    prune(parent);
  }
}

void PrefixCache::clear() {
  while (!recent_snapshots_.empty()) drop_snapshot(recent_snapshots_.back());
}

}  // namespace nibble::kv
