// Which pages of the cache are free and whose the others are. Bookkeeping only: the rows are in kv::Cache.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace nibble::kv {

using PageId = std::int32_t;

enum class PageOwner : std::uint8_t { kNobody, kSequence, kPrefixCache };

// A page has one owner at a time. One thread. Taking from an empty pool, or giving back what one does not own, is a broken
// invariant.
class PagePool {
 public:
  explicit PagePool(int pages);

  int size() const { return static_cast<int>(owners_.size()); }
  int free() const { return static_cast<int>(free_.size()); }
  int owned_by(PageOwner owner) const { return counts_[static_cast<std::size_t>(owner)]; }

  PageId take(PageOwner owner);
  void give_back(PageId page, PageOwner owner);
  void hand_over(PageId page, PageOwner from, PageOwner to);

 private:
  PageOwner& owner_of(PageId page);

  std::vector<PageOwner> owners_;
  std::vector<PageId> free_;  // the last one goes first
  std::array<int, 3> counts_{};
};

}  // namespace nibble::kv
