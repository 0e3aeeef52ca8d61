#include "text/bpe.h"

#include <algorithm>
#include <bit>
#include <queue>

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

void Bpe::encode_long(std::string_view piece, std::vector<TokenId>& out) const {
  constexpr std::uint32_t kNone = ~std::uint32_t{0};
  struct Node {
    TokenId token;  // -1: merged into the one before it
    std::uint32_t previous;
    std::uint32_t next;
  };
  // rank << 32 | position; which result the entry stood for is checked against the nodes when it
  // comes up.
  struct Candidate {
    std::uint64_t order;
    TokenId result;
    bool operator>(const Candidate& other) const { return order > other.order; }
  };
  const auto count = static_cast<std::uint32_t>(piece.size());
  std::vector<Node> nodes(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    nodes[i] = {byte_ids_[static_cast<unsigned char>(piece[i])], i == 0 ? kNone : i - 1,
                i + 1 == count ? kNone : i + 1};
  }
  const auto candidate_at = [&](std::uint32_t i, Candidate& candidate) {
    const std::uint32_t next = nodes[i].next;
    if (next == kNone) return false;
    const std::uint64_t merge = merge_of(nodes[i].token, nodes[next].token);
    if (merge == kNoMerge) return false;
    candidate = {(merge >> 32) << 32 | i, result_of(merge)};
    return true;
  };
  std::vector<Candidate> initial;
  initial.reserve(count);
  Candidate candidate{};
  for (std::uint32_t i = 0; i < count; ++i) {
    if (candidate_at(i, candidate)) initial.push_back(candidate);
  }
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue(std::greater<>{},
                                                                               std::move(initial));
  while (!queue.empty()) {
    const Candidate top = queue.top();
    queue.pop();
    const auto at = static_cast<std::uint32_t>(top.order & 0xFFFFFFFFu);
    Candidate current{};
    if (nodes[at].token < 0 || !candidate_at(at, current) || current.order != top.order) continue;
    const std::uint32_t gone = nodes[at].next;
    nodes[at].token = top.result;
    nodes[at].next = nodes[gone].next;
    nodes[gone].token = -1;
    if (nodes[at].next != kNone) nodes[nodes[at].next].previous = at;
    if (candidate_at(at, candidate)) queue.push(candidate);
    const std::uint32_t previous = nodes[at].previous;
    if (previous != kNone && candidate_at(previous, candidate)) queue.push(candidate);
  }
  for (std::uint32_t i = 0; i != kNone; i = nodes[i].next) out.push_back(nodes[i].token);
}

}  // namespace nibble::text
