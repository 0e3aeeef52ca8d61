// A small tokenizer for tests: every byte, a few merges, DeepSeek's control tokens.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <utility>
#include <vector>

#include "text/pretokenizer.h"
#include "text/python_json.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace nibble::text {

inline const std::vector<std::string>& test_control_tokens() {
  static const std::vector<std::string> kTokens = {"<｜begin▁of▁sentence｜>",
                                                   "<｜end▁of▁sentence｜>",
                                                   "<｜▁pad▁｜>",
                                                   "<｜User｜>",
                                                   "<｜Assistant｜>",
                                                   "<think>",
                                                   "</think>",
                                                   "｜DSML｜",
                                                   "<｜latest_reminder｜>",
                                                   "<｜action｜>",
                                                   "<｜title｜>",
                                                   "<｜image｜>"};
  return kTokens;
}

// One byte as byte-level files spell it.
inline std::string spelled_byte(int byte) {
  static const std::vector<std::string> kSpelled = [] {
    std::vector<std::string> out(256);
    char32_t next = 0x100;
    for (int b = 0; b < 256; ++b) {
      const bool visible = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b != 0xAD);
      append_code_point(out[static_cast<std::size_t>(b)],
                        visible ? static_cast<char32_t>(b) : next++);
    }
    return out;
  }();
  return kSpelled[static_cast<std::size_t>(byte)];
}

struct TestTokenizerParts {
  // Pairs as the file spells them, in rank order; each joined pair becomes a token.
  std::vector<std::pair<std::string, std::string>> merges = {{"Ġ", "t"}, {"h", "e"}, {"Ġt", "he"},
                                                             {"i", "n"}, {"l", "l"}, {"o", "Ġ"},
                                                             {"Ċ", "Ċ"}, {"\"", ">"}};
  std::vector<std::string> control = test_control_tokens();
};

// Ids: the three first control tokens, the 256 bytes from 3 on, the merged tokens, the other
// control tokens.
inline std::string test_tokenizer_json(const TestTokenizerParts& parts = {}) {
  int next = 3;
  std::vector<std::string> vocab;
  for (int byte = 0; byte < 256; ++byte) {
    vocab.push_back(fmt::format("{}: {}", python_json_string(spelled_byte(byte)), next++));
  }
  std::vector<std::string> merges;
  for (const auto& [left, right] : parts.merges) {
    vocab.push_back(fmt::format("{}: {}", python_json_string(left + right), next++));
    merges.push_back(fmt::format("[{}, {}]", python_json_string(left), python_json_string(right)));
  }
  std::vector<std::string> added;
  for (std::size_t i = 0; i < parts.control.size(); ++i) {
    const bool special = i < 3 || i + 1 == parts.control.size();
    added.push_back(fmt::format(
        R"({{"id": {}, "content": {}, "single_word": false, "lstrip": false, "rstrip": false, "normalized": {}, "special": {}}})",
        i < 3 ? static_cast<int>(i) : next++, python_json_string(parts.control[i]), !special,
        special));
  }
  std::vector<std::string> splits;
  for (const std::string_view pattern : kSplitPatterns) {
    splits.push_back(fmt::format(
        R"({{"type": "Split", "pattern": {{"Regex": {}}}, "behavior": "Isolated", "invert": false}})",
        python_json_string(pattern)));
  }
  return fmt::format(
      R"({{"version": "1.0", "added_tokens": [{}], "normalizer": {{"type": "Sequence", "normalizers": []}}, )"
      R"("pre_tokenizer": {{"type": "Sequence", "pretokenizers": [{}, {{"type": "ByteLevel", "add_prefix_space": false, )"
      R"("trim_offsets": true, "use_regex": false}}]}}, "decoder": {{"type": "ByteLevel"}}, )"
      R"("model": {{"type": "BPE", "dropout": null, "unk_token": null, "byte_fallback": false, "vocab": {{{}}}, "merges": [{}]}}}})",
      fmt::join(added, ", "), fmt::join(splits, ", "), fmt::join(vocab, ", "),
      fmt::join(merges, ", "));
}

inline Tokenizer test_tokenizer() {
  return Tokenizer::parse(test_tokenizer_json(), "test.json");
}

// Ids as text, with added tokens in [[ ]]: shows what is a control token and what only looks like
// one.
inline std::string marked(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  std::string out;
  for (const TokenId id : ids) {
    if (tokenizer.is_added(id)) {
      out += "[[" + std::string(tokenizer.token_bytes(id)) + "]]";
    } else {
      out += tokenizer.token_bytes(id);
    }
  }
  return out;
}

}  // namespace nibble::text
