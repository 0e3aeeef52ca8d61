#include "text/bpe.h"

#include <algorithm>
#include <bit>
#include <map>
#include <utility>

#include "base/check.h"

namespace nibble::text {

namespace {

// Up to here scanning all pairs for each merge beats keeping a heap.
constexpr std::size_t kShortPiece = 48;  // bytes

std::uint64_t pair_key(TokenId left, TokenId right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

std::uint64_t hash_of(std::uint64_t pair) {
  return pair * 0x9E3779B97F4A7C15u;
}

TokenId result_of(std::uint64_t merge) {
  return static_cast<TokenId>(merge & 0xFFFFFFFFu);
}

}  // namespace

Bpe::Bpe(const std::array<TokenId, 256>& byte_ids, const std::vector<Merge>& merges)
    : byte_ids_(byte_ids) {
  const std::size_t size = std::bit_ceil(std::max<std::size_t>(merges.size() * 2, 16));
  slots_.resize(size);
  shift_ = 64 - std::countr_zero(size);
  std::uint64_t rank = 0;
  for (const Merge& merge : merges) {
    const std::uint64_t key = pair_key(merge.left, merge.right);
    std::size_t at = hash_of(key) >> shift_;
    while (slots_[at].pair != kEmpty && slots_[at].pair != key) at = (at + 1) & (size - 1);
    slots_[at] = {key, rank++ << 32 | static_cast<std::uint32_t>(merge.result)};
  }
}

std::uint64_t Bpe::merge_of(TokenId left, TokenId right) const {
  const std::uint64_t key = pair_key(left, right);
  std::size_t at = hash_of(key) >> shift_;
  while (slots_[at].pair != key) {
    if (slots_[at].pair == kEmpty) return kNoMerge;
    at = (at + 1) & (slots_.size() - 1);
  }
  return slots_[at].merge;
}

void Bpe::encode(std::string_view piece, std::vector<TokenId>& out) const {
  NIBBLE_CHECK(piece.size() < (std::uint64_t{1} << 32), "a piece of {} bytes", piece.size());
  if (piece.size() <= kShortPiece) {
    encode_short(piece, out);
  } else {
    encode_long(piece, out);
  }
}

void Bpe::encode_short(std::string_view piece, std::vector<TokenId>& out) const {
  std::size_t count = piece.size();
  std::array<TokenId, kShortPiece> tokens;
  std::array<std::uint64_t, kShortPiece> merges;  // merges[i]: of tokens i and i + 1
  for (std::size_t i = 0; i < count; ++i) {
    tokens[i] = byte_ids_[static_cast<unsigned char>(piece[i])];
  }
  for (std::size_t i = 0; i + 1 < count; ++i) merges[i] = merge_of(tokens[i], tokens[i + 1]);
  while (count > 1) {
    const auto best = std::min_element(merges.begin(), merges.begin() + count - 1);
    if (*best == kNoMerge) break;
    const auto at = static_cast<std::size_t>(best - merges.begin());
    tokens[at] = result_of(*best);
    std::copy(tokens.begin() + at + 2, tokens.begin() + count, tokens.begin() + at + 1);
    std::copy(merges.begin() + at + 1, merges.begin() + count - 1, merges.begin() + at);
    --count;
    if (at > 0) merges[at - 1] = merge_of(tokens[at - 1], tokens[at]);
    if (at + 1 < count) merges[at] = merge_of(tokens[at], tokens[at + 1]);
  }
  out.insert(out.end(), tokens.begin(), tokens.begin() + count);
}

// Positions wait in one list a rank, so that a long run of one character costs a list operation a
// merge, not a heap operation. A list is worked off from left to right; it is left for a lower rank
// as soon as one appears.
void Bpe::encode_long(std::string_view piece, std::vector<TokenId>& out) const {
  constexpr std::uint32_t kNone = ~std::uint32_t{0};
  struct Node {
    TokenId token;  // -1: merged into the one before it
    std::uint32_t previous;
    std::uint32_t next;
  };
  struct Waiting {
    std::vector<std::uint32_t> positions;
    std::size_t done = 0;
    bool sorted = true;
  };
  const auto count = static_cast<std::uint32_t>(piece.size());
  std::vector<Node> nodes(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    nodes[i] = {byte_ids_[static_cast<unsigned char>(piece[i])], i == 0 ? kNone : i - 1,
                i + 1 == count ? kNone : i + 1};
  }
  const auto merge_at = [&](std::uint32_t i) {
    const std::uint32_t next = nodes[i].next;
    return next == kNone ? kNoMerge : merge_of(nodes[i].token, nodes[next].token);
  };

  std::map<std::uint32_t, Waiting> ranks;
  std::pair<std::uint32_t, Waiting*> recent{0, nullptr};  // saves most of the look-ups
  const auto add = [&](std::uint32_t i) {
    const std::uint64_t merge = merge_at(i);
    if (merge == kNoMerge) return;
    const auto rank = static_cast<std::uint32_t>(merge >> 32);
    if (recent.second == nullptr || recent.first != rank) recent = {rank, &ranks[rank]};
    std::vector<std::uint32_t>& positions = recent.second->positions;
    if (!positions.empty() && i < positions.back()) recent.second->sorted = false;
    positions.push_back(i);
  };
  for (std::uint32_t i = 0; i < count; ++i) add(i);

  while (!ranks.empty()) {
    const auto lowest = ranks.begin();
    Waiting& waiting = lowest->second;
    if (!waiting.sorted) {
      std::sort(waiting.positions.begin() + static_cast<std::ptrdiff_t>(waiting.done),
                waiting.positions.end());
      waiting.sorted = true;
    }
    while (waiting.done < waiting.positions.size() && ranks.begin() == lowest) {
      const std::uint32_t at = waiting.positions[waiting.done++];
      if (nodes[at].token < 0) continue;
      const std::uint64_t merge = merge_at(at);
      if (merge == kNoMerge || merge >> 32 != lowest->first) continue;  // its pair has changed
      const std::uint32_t gone = nodes[at].next;
      nodes[at].token = result_of(merge);
      nodes[at].next = nodes[gone].next;
      nodes[gone].token = -1;
      if (nodes[at].next != kNone) nodes[nodes[at].next].previous = at;
      if (nodes[at].previous != kNone) add(nodes[at].previous);
      add(at);
    }
    if (waiting.done == waiting.positions.size()) {
      if (recent.second == &waiting) recent.second = nullptr;
      ranks.erase(lowest);
    }
  }
  for (std::uint32_t i = 0; i != kNone; i = nodes[i].next) out.push_back(nodes[i].token);
}

}  // namespace nibble::text
