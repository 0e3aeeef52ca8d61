// Finds added tokens in text, as the `tokenizers` library does.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "nibble/types.h"
#include "text/tokenizer.h"

namespace nibble::text {

struct AddedToken {
  TokenId id = 0;
  std::string content;  // not empty
  bool special = false;
  bool normalized = false;  // searched after those that are not, in what they left
};

class AddedTokens {
 public:
  explicit AddedTokens(std::vector<AddedToken> tokens);

  const std::vector<AddedToken>& all() const { return tokens_; }
  std::optional<TokenId> id_of(std::string_view content) const;

  // Leftmost match first, the longest of those that start there.
  std::vector<Tokenizer::Part> split(std::string_view text) const;

 private:
  // A byte trie; node 0 is the root.
  struct Trie {
    struct Node {
      TokenId token = -1;                                    // -1: no token ends here
      std::vector<std::pair<char, std::uint32_t>> children;  // few each
    };
    std::vector<Node> nodes{1};
    std::array<bool, 256> starts{};  // bytes some token begins with

    void add(std::string_view content, TokenId id);
    // Length of the longest token at the front of `text`, 0 when none; its id in `token`.
    std::size_t match(std::string_view text, TokenId& token) const;
    void split(std::string_view text, std::vector<Tokenizer::Part>& out) const;
  };

  std::vector<AddedToken> tokens_;
  std::unordered_map<std::string, TokenId> ids_;
  Trie raw_;
  Trie normalized_;
};

}  // namespace nibble::text
