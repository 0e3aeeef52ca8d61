// Byte-pair encoding of one piece: merge the adjacent pair of lowest rank, the leftmost of equals,
// until none is left.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "nibble/types.h"

namespace nibble::text {

struct Merge {
  TokenId left = 0;
  TokenId right = 0;
  TokenId result = 0;
};

class Bpe {
 public:
  // byte_ids: the token of each single byte. merges: in rank order; of two with the same pair the
  // later one counts.
  Bpe(const std::array<TokenId, 256>& byte_ids, const std::vector<Merge>& merges);

  // Appends the piece's tokens, in about linear time (n log n when every pair has a rank of its
  // own). `piece` holds fewer than 2^32 bytes.
  void encode(std::string_view piece, std::vector<TokenId>& out) const;

 private:
  // rank << 32 | result; kNoMerge when the pair does not merge. Lower means merge first.
  std::uint64_t merge_of(TokenId left, TokenId right) const;
  void encode_short(std::string_view piece, std::vector<TokenId>& out) const;
  void encode_long(std::string_view piece, std::vector<TokenId>& out) const;

  struct Slot {
    std::uint64_t pair = kEmpty;
    std::uint64_t merge = 0;
  };
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};
  static constexpr std::uint64_t kNoMerge = ~std::uint64_t{0};

  std::array<TokenId, 256> byte_ids_;
  std::vector<Slot> slots_;  // open addressing, at most half full; size is a power of two
  int shift_ = 0;            // 64 - log2(size)
};

}  // namespace nibble::text
