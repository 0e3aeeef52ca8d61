// Prefixes that were computed before: a tree of full pages, and beside it snapshots of what cannot be rebuilt from pages
// (window rows, open compressor state: deepseek-v4.md 3.8). A sequence can start only where there is a snapshot. A page that has to
// give way may go to host memory and come back when it is found again.
#pragma once

#include <cstddef>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kv/page_pool.h"
#include "nibble/types.h"

namespace nibble::kv {

// One thread. Pages that the tree owns never change; a sequence reads them under a lease, which keeps them from being evicted.
// Sequences with different salts share nothing.
class PrefixCache {
  struct Node;

 public:
  // Where pages go that have to give way, at most `bytes` of them; 0: nowhere.
  struct HostTier {
    std::int64_t bytes = 0;
    std::function<std::vector<std::byte>(PageId)> save;
    std::function<void(PageId, std::span<const std::byte>)> restore;
  };

  // Borrows the pool. snapshot_bytes bounds what all snapshots together take of host memory; 0: nothing is kept.
  PrefixCache(PagePool& pool, std::int64_t snapshot_bytes, HostTier host);
  ~PrefixCache();
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  // A sequence's hold on the pages from the root to a node; empty: on none. Must be given back with release().
  class Lease {
    friend class PrefixCache;
    Node* node_ = nullptr;
  };

  struct Match {
    int position = 0;  // tokens held by the deepest snapshot that the tokens begin with; 0: none
    int shared = 0;    // tokens that these have in common with what is kept here, >= position
    std::span<const std::byte> snapshot;  // until the next insert()
    std::vector<PageId> pages;  // position / kPageTokens of them; -1: in host memory, see load()
    Lease lease;                // on these pages
  };
  // Only snapshots of at most `most` tokens count.
  Match match(const std::string& salt, std::span<const TokenId> tokens, int most);

  // Whether there is a snapshot of exactly these tokens; it becomes the most recently used one.
  bool holds(const std::string& salt, std::span<const TokenId> tokens);

  // Keeps a snapshot of the sequence with these tokens. `pages` are the sequence's first tokens.size() / kPageTokens ones;
  // those under its lease are the tree's already, the others become the tree's. Where the tree has a page of the same tokens, the
  // sequence's own is given back and `pages` names the tree's. The lease then covers all of them.
  void insert(const std::string& salt, std::span<const TokenId> tokens, std::span<PageId> pages,
              Lease& lease, std::vector<std::byte> snapshot);

  // Brings the pages that are -1 back from host memory, into pages of the pool, which must have as many free. What restoring
  // throws leaves the rest as it was.
  void load(const Lease& lease, std::span<PageId> pages);

  // Pages under a lease.
  static int leased_pages(const Lease& lease);
  void release(Lease& lease);

  // Frees the page that was used longest ago, of those that nobody has a lease on; its rows go to host memory where there is
  // room. False: there is none. What saving throws loses the page's rows, and nothing else.
  bool evict_page();
  int evictable_pages() const { return evictable_; }

  // Forgets all that nobody has a lease on, and every snapshot.
  void clear();

  int snapshots() const { return static_cast<int>(recent_snapshots_.size()); }
  std::int64_t snapshot_bytes() const { return bytes_; }
  int host_pages() const { return host_pages_; }

 private:
  struct Lexicographic {
    using is_transparent = void;
    bool operator()(std::span<const TokenId> a, std::span<const TokenId> b) const;
  };
  template <typename T>
  using TokenMap = std::map<std::vector<TokenId>, T, Lexicographic>;

  struct SnapshotRef {
    Node* node;
    const std::vector<TokenId>* tail;
  };
  struct Snapshot {
    std::vector<std::byte> bytes;
    std::list<SnapshotRef>::iterator recent;
  };
  // The root of a salt has no page; any other node one, of the kPageTokens tokens that lead to it.
  struct Node {
    Node* parent = nullptr;
    const std::string* salt = nullptr;  // of a root
    int depth = 0;                      // pages from the root
    PageId page = -1;                   // -1: its rows are in `host`
    std::vector<std::byte> host;
    const std::vector<TokenId>* key = nullptr;  // in the parent's map
    int leases = 0;                             // on this node or below
    TokenMap<std::unique_ptr<Node>> children;
    TokenMap<Snapshot> snapshots;  // by the tokens behind the last full page
    std::list<Node*>::iterator recent;
  };

  Node& root(const std::string& salt);
  void touch(Node* node);
  void take_lease(Node* node, Lease& lease);
  Node& add_child(Node& parent, std::span<const TokenId> tokens, PageId page);
  void drop_snapshot(SnapshotRef ref);
  void drop_host(Node* node);
  void trim_host();
  // Removes the node and what above it nobody needs any more.
  void prune(Node* node);
  void remove(Node* node);
  void remove_subtree(Node* node);

  PagePool& pool_;
  std::int64_t budget_;
  std::int64_t bytes_ = 0;
  HostTier host_;
  std::int64_t host_bytes_ = 0;
  int host_pages_ = 0;
  int evictable_ = 0;  // pages of nodes without leases
  std::map<std::string, std::unique_ptr<Node>> roots_;
  // The most recently used first; a node before those below it. So pages in host memory never lie above others.
  std::list<Node*> recent_nodes_;
  std::list<SnapshotRef> recent_snapshots_;
};

}  // namespace nibble::kv
