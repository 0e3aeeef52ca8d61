#include "text/added_tokens.h"

#include <utility>

namespace nibble::text {

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  for (const AddedToken& token : tokens_) {
    ids_.emplace(token.content, token.id);
    (token.normalized ? normalized_ : raw_).add(token.content, token.id);
  }
}

std::optional<TokenId> AddedTokens::id_of(std::string_view content) const {
  const auto found = ids_.find(std::string(content));
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

std::vector<Tokenizer::Part> AddedTokens::split(std::string_view text) const {
  std::vector<Tokenizer::Part> first;
  raw_.split(text, first);
  std::vector<Tokenizer::Part> out;
  for (const Tokenizer::Part& part : first) {
    if (part.added) {
      out.push_back(part);
    } else {
      normalized_.split(part.plain, out);
    }
  }
  return out;
}

void AddedTokens::Trie::add(std::string_view content, TokenId id) {
  starts[static_cast<unsigned char>(content[0])] = true;
  std::uint32_t node = 0;
  for (const char byte : content) {
    std::uint32_t next = 0;
    for (const auto& [label, child] : nodes[node].children) {
      if (label == byte) next = child;
    }
    if (next == 0) {
      next = static_cast<std::uint32_t>(nodes.size());
      nodes[node].children.emplace_back(byte, next);
      nodes.emplace_back();
    }
    node = next;
  }
  nodes[node].token = id;
}

std::size_t AddedTokens::Trie::match(std::string_view text, TokenId& token) const {
  std::size_t longest = 0;
  std::uint32_t node = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    std::uint32_t next = 0;
    for (const auto& [label, child] : nodes[node].children) {
      if (label == text[at]) {
        next = child;
        break;
      }
    }
    if (next == 0) break;
    node = next;
    if (nodes[node].token >= 0) {
      longest = at + 1;
      token = nodes[node].token;
    }
  }
  return longest;
}

void AddedTokens::Trie::split(std::string_view text, std::vector<Tokenizer::Part>& out) const {
  std::size_t plain = 0;
  std::size_t at = 0;
  while (at < text.size()) {
    TokenId token = -1;
    const std::size_t length =
        starts[static_cast<unsigned char>(text[at])] ? match(text.substr(at), token) : 0;
    if (length == 0) {
      ++at;
      continue;
    }
    if (plain < at) out.push_back({std::nullopt, text.substr(plain, at - plain)});
    out.push_back({token, {}});
    at += length;
    plain = at;
  }
  if (plain < text.size()) out.push_back({std::nullopt, text.substr(plain)});
}

}  // namespace nibble::text
