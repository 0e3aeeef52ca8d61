#include "kv/page_pool.h"

#include <numeric>

#include "base/check.h"

namespace nibble::kv {

PagePool::PagePool(int pages)
    : owners_(static_cast<std::size_t>(pages), PageOwner::kNobody),
      free_(static_cast<std::size_t>(pages)) {
  std::iota(free_.rbegin(), free_.rend(), 0);
  counts_[static_cast<std::size_t>(PageOwner::kNobody)] = pages;
}

PageOwner& PagePool::owner_of(PageId page) {
  NIBBLE_CHECK(page >= 0 && page < size(), "page {} of {}", page, size());
  return owners_[static_cast<std::size_t>(page)];
}

PageId PagePool::take(PageOwner owner) {
  NIBBLE_CHECK(!free_.empty(), "all {} pages are taken", size());
  const PageId page = free_.back();
  free_.pop_back();
  hand_over(page, PageOwner::kNobody, owner);
  return page;
}

void PagePool::give_back(PageId page, PageOwner owner) {
  hand_over(page, owner, PageOwner::kNobody);
  free_.push_back(page);
}

void PagePool::hand_over(PageId page, PageOwner from, PageOwner to) {
  PageOwner& owner = owner_of(page);
  NIBBLE_CHECK(owner == from, "page {} belongs to owner {}, not {}", page, static_cast<int>(owner),
               static_cast<int>(from));
  owner = to;
  --counts_[static_cast<std::size_t>(from)];
  ++counts_[static_cast<std::size_t>(to)];
}

}  // namespace nibble::kv
