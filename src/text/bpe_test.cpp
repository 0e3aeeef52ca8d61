#include "text/bpe.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

namespace nibble::text {
namespace {

// The definition: look through all pairs, merge the leftmost of lowest rank, start again.
std::vector<TokenId> by_definition(const std::vector<Merge>& merges, std::vector<TokenId> tokens) {
  std::map<std::pair<TokenId, TokenId>, std::pair<std::size_t, TokenId>> ranks;
  for (std::size_t i = 0; i < merges.size(); ++i)
    ranks[{merges[i].left, merges[i].right}] = {i, merges[i].result};
  while (true) {
    std::size_t best = merges.size();
    std::size_t at = 0;
    TokenId result = 0;
    for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
      const auto found = ranks.find({tokens[i], tokens[i + 1]});
      if (found != ranks.end() && found->second.first < best) {
        best = found->second.first;
        result = found->second.second;
        at = i;
      }
    }
    if (best == merges.size()) return tokens;
    tokens[at] = result;
    tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

// Merges in random order, so that a merge can make a pair of lower rank possible: files from
// training never do that, the order must still be kept. Lengths around the limit between the two
// algorithms.
TEST(Bpe, EqualsTheDefinition) {
  std::mt19937 random(11);
  for (int round = 0; round < 60; ++round) {
    std::array<TokenId, 256> byte_ids;
    for (int i = 0; i < 256; ++i) byte_ids[static_cast<std::size_t>(i)] = i;
    std::map<std::string, TokenId> ids;
    std::vector<std::string> tokens;
    for (const char c : {'a', 'b', 'c'}) tokens.emplace_back(1, c);
    for (const std::string& token : tokens) ids[token] = static_cast<unsigned char>(token[0]);
    std::vector<Merge> merges;
    for (int i = 0; i < 40; ++i) {
      const std::string left = tokens[random() % tokens.size()];
      const std::string right = tokens[random() % tokens.size()];
      if (left.size() + right.size() > 9) continue;
      const auto [place, is_new] =
          ids.emplace(left + right, 256 + static_cast<TokenId>(ids.size()));
      if (is_new) tokens.push_back(left + right);
      merges.push_back({ids[left], ids[right], place->second});
    }
    if (round % 2 == 1) std::shuffle(merges.begin(), merges.end(), random);
    const Bpe bpe(byte_ids, merges);
    for (const std::size_t length : {1u, 2u, 3u, 7u, 47u, 48u, 49u, 50u, 130u, 400u}) {
      std::string piece;
      std::vector<TokenId> start;
      while (piece.size() < length)
        piece += static_cast<char>('a' + static_cast<int>(random() % 3));
      for (const char c : piece) start.push_back(static_cast<unsigned char>(c));
      std::vector<TokenId> found;
      bpe.encode(piece, found);
      ASSERT_EQ(found, by_definition(merges, start)) << "round " << round << ", " << piece;
    }
  }
}

TEST(Bpe, WithoutMergesBytesStay) {
  std::array<TokenId, 256> byte_ids;
  for (int i = 0; i < 256; ++i) byte_ids[static_cast<std::size_t>(i)] = 1000 + i;
  const Bpe bpe(byte_ids, {});
  std::vector<TokenId> found = {5};
  bpe.encode("ab", found);
  EXPECT_EQ(found, (std::vector<TokenId>{5, 1097, 1098}));
}

}  // namespace
}  // namespace nibble::text
