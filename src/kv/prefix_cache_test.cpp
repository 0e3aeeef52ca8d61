#include "kv/prefix_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <random>

#include "ops/batch.h"

namespace nibble::kv {
namespace {

using ops::kPageTokens;

std::vector<TokenId> tokens(int count, TokenId first = 0) {
  std::vector<TokenId> t;
  for (int i = 0; i < count; ++i) t.push_back(first + i % 97);
  return t;
}

std::vector<std::byte> snapshot(std::size_t bytes, int mark) {
  return std::vector<std::byte>(bytes, static_cast<std::byte>(mark));
}

class PrefixCacheTest : public ::testing::Test {
 protected:
  // Inserts as a sequence does that computed all tokens itself, and ends.
  void add(const std::vector<TokenId>& t, int mark, const std::string& salt = "") {
    std::vector<PageId> pages;
    for (std::size_t i = 0; i < t.size() / kPageTokens; ++i)
      pages.push_back(pool_.take(PageOwner::kSequence));
    PrefixCache::Lease lease;
    cache_.insert(salt, t, pages, lease, snapshot(100, mark));
    for (auto i = static_cast<std::size_t>(PrefixCache::leased_pages(lease)); i < pages.size(); ++i)
      pool_.give_back(pages[i], PageOwner::kSequence);
    cache_.release(lease);
  }
  // The deepest snapshot's mark, -1 without one.
  int mark(const std::vector<TokenId>& t, int most, int* position = nullptr,
           const std::string& salt = "") {
    auto match = cache_.match(salt, t, most);
    if (position) *position = match.position;
    const int found = match.position > 0 ? static_cast<int>(match.snapshot[0]) : -1;
    EXPECT_EQ(match.pages.size(), static_cast<std::size_t>(match.position / kPageTokens));
    cache_.release(match.lease);
    return found;
  }

  PagePool pool_{16};
  PrefixCache cache_{pool_, 1000, {}};
};

TEST_F(PrefixCacheTest, TheDeepestSnapshotThatTheTokensBeginWith) {
  add(tokens(20), 1);
  add(tokens(30), 2);
  add(tokens(300), 3);
  add(tokens(2 * kPageTokens), 4);
  int position = 0;
  EXPECT_EQ(mark(tokens(1000), 1000, &position), 4);
  EXPECT_EQ(position, 2 * kPageTokens);
  EXPECT_EQ(mark(tokens(1000), 2 * kPageTokens - 1, &position), 3);
  EXPECT_EQ(position, 300);
  EXPECT_EQ(mark(tokens(299), 299, &position), 2);
  EXPECT_EQ(position, 30);
  EXPECT_EQ(mark(tokens(30), 29), 1);
  EXPECT_EQ(mark(tokens(19), 19), -1);
  EXPECT_EQ(mark(tokens(300, 1), 300), -1) << "other tokens";
  EXPECT_EQ(mark(tokens(300), 300, nullptr, "other salt"), -1);
}

TEST_F(PrefixCacheTest, TellsHowMuchIsShared) {
  add(tokens(300), 1);
  std::vector<TokenId> other = tokens(300);
  other[280] = -5;
  auto match = cache_.match("", other, 299);
  EXPECT_EQ(match.shared, 280);
  EXPECT_EQ(match.position, 0);
  cache_.release(match.lease);
  other[100] = -5;
  match = cache_.match("", other, 299);
  EXPECT_EQ(match.shared, 100);
  cache_.release(match.lease);
}

TEST_F(PrefixCacheTest, SharesPagesOfTheSameTokens) {
  add(tokens(600), 1);
  EXPECT_EQ(pool_.owned_by(PageOwner::kPrefixCache), 2);
  std::vector<PageId> pages = {pool_.take(PageOwner::kSequence), pool_.take(PageOwner::kSequence),
                               pool_.take(PageOwner::kSequence)};
  const std::vector<PageId> before = pages;
  PrefixCache::Lease lease;
  cache_.insert("", tokens(3 * kPageTokens), pages, lease, snapshot(100, 2));
  EXPECT_NE(pages[0], before[0]);
  EXPECT_NE(pages[1], before[1]);
  EXPECT_EQ(pages[2], before[2]);
  EXPECT_EQ(pool_.owned_by(PageOwner::kPrefixCache), 3);
  EXPECT_EQ(pool_.owned_by(PageOwner::kSequence), 0);
  EXPECT_EQ(PrefixCache::leased_pages(lease), 3);
  EXPECT_EQ(cache_.evictable_pages(), 0);
  EXPECT_FALSE(cache_.evict_page());
  cache_.release(lease);
  EXPECT_EQ(cache_.evictable_pages(), 3);
}

TEST_F(PrefixCacheTest, EvictsTheOldestLeafFirst) {
  add(tokens(2 * kPageTokens), 1);
  add(tokens(2 * kPageTokens, 1000), 2);
  mark(tokens(2 * kPageTokens), 2 * kPageTokens);  // the first is now the more recent one
  EXPECT_TRUE(cache_.evict_page());
  // The second's leaf held its only snapshot, so the page above it is of no use either.
  EXPECT_EQ(pool_.free(), 14);
  EXPECT_EQ(mark(tokens(2 * kPageTokens, 1000), 2 * kPageTokens), -1);
  EXPECT_EQ(mark(tokens(2 * kPageTokens), 2 * kPageTokens), 1);
}

TEST_F(PrefixCacheTest, SnapshotsHaveABudgetOfTheirOwn) {
  for (int i = 0; i < 25; ++i) add(tokens(20, 1000 * i), i);
  EXPECT_EQ(cache_.snapshots(), 10);
  EXPECT_EQ(cache_.snapshot_bytes(), 1000);
  EXPECT_EQ(mark(tokens(20, 14000), 20), -1);
  EXPECT_EQ(mark(tokens(20, 15000), 20), 15);
  EXPECT_EQ(mark(tokens(20, 24000), 20), 24);
}

TEST_F(PrefixCacheTest, ClearLeavesNothing) {
  add(tokens(700), 1);
  auto match = cache_.match("", tokens(1000), 999);
  EXPECT_EQ(match.position, 700);
  cache_.clear();
  EXPECT_EQ(pool_.owned_by(PageOwner::kPrefixCache), 2) << "leased";
  EXPECT_EQ(cache_.snapshots(), 0);
  cache_.release(match.lease);
  EXPECT_EQ(pool_.free(), pool_.size());
  EXPECT_EQ(cache_.evictable_pages(), 0);
}

// Against a list of everything kept, with leases held at random and pages running out.
class PrefixCacheTraffic : public ::testing::TestWithParam<int> {};

TEST_P(PrefixCacheTraffic, AgreesWithAPlainList) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  PagePool pool(12);
  // What each page holds, as far as it is known: with a host tier this is all that comes back.
  std::map<PageId, std::vector<TokenId>> rows;
  PrefixCache::HostTier host;
  host.bytes = GetParam() * kPageTokens * static_cast<std::int64_t>(sizeof(TokenId));
  host.save = [&](PageId page) {
    std::vector<std::byte> bytes(kPageTokens * sizeof(TokenId));
    std::memcpy(bytes.data(), rows[page].data(), bytes.size());
    return bytes;
  };
  host.restore = [&](PageId page, std::span<const std::byte> bytes) {
    rows[page].resize(kPageTokens);
    std::memcpy(rows[page].data(), bytes.data(), bytes.size());
  };
  PrefixCache cache(pool, 1 << 20, host);
  int came_back = 0;
  const auto prompt = [&] {
    std::vector<TokenId> t;
    const unsigned length = 1 + random() % (4 * kPageTokens);
    // Few different pages, so that much is shared.
    while (t.size() < length) {
      const TokenId kind = static_cast<TokenId>(random() % 3);
      for (int i = 0; i < kPageTokens / 2 && t.size() < length; ++i) t.push_back(kind);
    }
    return t;
  };
  struct Running {
    std::vector<TokenId> tokens;
    std::vector<PageId> pages;
    PrefixCache::Lease lease;
  };
  std::vector<Running> running;
  for (int step = 0; step < 3000; ++step) {
    if (running.size() < 3) {
      Running r;
      r.tokens = prompt();
      auto match = cache.match("", r.tokens, static_cast<int>(r.tokens.size()) - 1);
      if (match.position > 0) {
        // A snapshot's bytes are the number of tokens and their sum.
        int held[2];
        ASSERT_EQ(match.snapshot.size(), sizeof held);
        std::memcpy(held, match.snapshot.data(), sizeof held);
        ASSERT_EQ(held[0], match.position);
        ASSERT_EQ(held[1], std::accumulate(r.tokens.begin(), r.tokens.begin() + match.position, 0));
      }
      ASSERT_GE(match.shared, match.position);
      r.pages = match.pages;
      r.lease = match.lease;
      const auto away = static_cast<int>(std::count(r.pages.begin(), r.pages.end(), -1));
      const std::size_t own = r.tokens.size() / kPageTokens - r.pages.size();
      const int needed = static_cast<int>(own) + away;
      while (pool.free() < needed && cache.evict_page()) {
      }
      if (pool.free() >= needed) {
        cache.load(r.lease, r.pages);
        came_back += away;
        for (std::size_t i = 0; i < own; ++i) r.pages.push_back(pool.take(PageOwner::kSequence));
        for (std::size_t i = 0; i < r.pages.size(); ++i) {
          const auto begin = r.tokens.begin() + static_cast<std::ptrdiff_t>(i) * kPageTokens;
          const std::vector<TokenId> page(begin, begin + kPageTokens);
          ASSERT_TRUE(i >= r.pages.size() - own || rows[r.pages[i]] == page) << "page " << i;
          rows[r.pages[i]] = page;
        }
        running.push_back(r);
      } else {
        cache.release(r.lease);
      }
    }
    if (running.empty() || random() % 2 == 0) continue;
    const std::size_t pick = random() % running.size();
    Running& r = running[pick];
    if (random() % 3 != 0) {
      const std::size_t position =
          std::max<std::size_t>(1, r.tokens.size() - random() % (r.tokens.size() / 4 + 1));
      const std::size_t leased = static_cast<std::size_t>(PrefixCache::leased_pages(r.lease));
      if (position / kPageTokens >= leased) {
        const std::span<const TokenId> kept(r.tokens.data(), position);
        const int held[2] = {static_cast<int>(position),
                             std::accumulate(kept.begin(), kept.end(), 0)};
        std::vector<std::byte> bytes(sizeof held);
        std::memcpy(bytes.data(), held, sizeof held);
        cache.insert("", kept, std::span(r.pages).first(position / kPageTokens), r.lease, bytes);
        ASSERT_TRUE(cache.holds("", kept));
      }
    }
    for (auto i = static_cast<std::size_t>(PrefixCache::leased_pages(r.lease)); i < r.pages.size();
         ++i)
      pool.give_back(r.pages[i], PageOwner::kSequence);
    cache.release(r.lease);
    running.erase(running.begin() + static_cast<std::ptrdiff_t>(pick));
  }
  for (Running& r : running) {
    for (auto i = static_cast<std::size_t>(PrefixCache::leased_pages(r.lease)); i < r.pages.size();
         ++i)
      pool.give_back(r.pages[i], PageOwner::kSequence);
    cache.release(r.lease);
  }
  EXPECT_EQ(cache.evictable_pages(), pool.owned_by(PageOwner::kPrefixCache));
  EXPECT_EQ(came_back > 0, GetParam() > 1);
  EXPECT_LE(cache.host_pages(), GetParam());
  cache.clear();
  EXPECT_EQ(pool.free(), pool.size());
  EXPECT_EQ(cache.host_pages(), 0);
}

INSTANTIATE_TEST_SUITE_P(PagesInHostMemory, PrefixCacheTraffic, ::testing::Values(0, 5, 1000));

}  // namespace
}  // namespace nibble::kv
