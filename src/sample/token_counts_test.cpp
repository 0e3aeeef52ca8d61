#include "sample/token_counts.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace nibble::sample {
namespace {

TEST(TokenCounts, CountAsAMapDoes) {
  std::mt19937 random(3);
  TokenCounts counts;
  std::map<TokenId, std::pair<int, int>> expected;
  std::vector<TokenId> generated;
  EXPECT_EQ(counts.find(5).generated, 0);
  for (int i = 0; i < 20000; ++i) {
    // Ids that share low bits crowd the table.
    const TokenId token = static_cast<TokenId>(random() % 500 * 256);
    switch (random() % 3) {
      case 0:
        counts.add_prompt(std::span(&token, 1));
        ++expected[token].first;
        break;
      case 1:
        counts.add_generated(token);
        ++expected[token].second;
        generated.push_back(token);
        break;
      default:
        if (generated.empty()) break;
        counts.remove_generated(generated.back());
        --expected[generated.back()].second;
        generated.pop_back();
    }
  }
  EXPECT_EQ(counts.entries().size(), expected.size());
  for (const TokenCounts::Entry& entry : counts.entries()) {
    EXPECT_EQ(entry.prompt, expected[entry.token].first) << entry.token;
    EXPECT_EQ(entry.generated, expected[entry.token].second) << entry.token;
    EXPECT_EQ(counts.find(entry.token).generated, entry.generated);
  }
  EXPECT_EQ(counts.find(1).prompt, 0);
}

}  // namespace
}  // namespace nibble::sample
