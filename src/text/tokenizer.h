// Byte-level BPE as described by a checkpoint's tokenizer.json; token for token what the
// `tokenizers` library does.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "nibble/types.h"

namespace nibble::text {

class AddedTokens;
class Bpe;
struct TokenizerSpec;

// Immutable after loading; every method may be called from any thread at once. Movable.
class Tokenizer {
 public:
  // Throws CheckpointError naming the file and the place in it: missing or damaged parts, a model
  // other than byte-level BPE, a normalizer, or a pre-tokenizer whose patterns are not the ones the
  // splitter implements (pretokenizer.h).
  static Tokenizer load(const std::filesystem::path& tokenizer_json);
  // The same from memory; `name` stands for the file in messages.
  static Tokenizer parse(std::string_view json, const std::string& name);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Plain text to ids. Never gives an added (control) token, whatever the text says: `<｜User｜>`
  // in it becomes ordinary tokens. This is what chat uses for everything that did not come from the
  // encoder itself. The text should be valid UTF-8 (callers answer 400 first, see
  // first_invalid_utf8); bytes that are not are encoded one by one as characters of no class, so
  // that decoding still gives the same bytes. No BOS is added by either function.
  std::vector<TokenId> encode(std::string_view text) const;

  // As the `tokenizers` library encodes: strings of added tokens become those tokens, the text
  // between them is plain. For prompts that the caller writes raw: /v1/completions and /tokenize
  // use this one by default. Never for chat.
  std::vector<TokenId> encode_with_control(std::string_view text) const;

  // A token's bytes: possibly half a character; an added token's own text; "" for an id that stands
  // for nothing (a hole in the vocabulary, or outside it). The view lives as long as the tokenizer.
  std::string_view token_bytes(TokenId id) const;

  // Text of the ids, invalid UTF-8 replaced as lossy_utf8() does. Ids outside the vocabulary add
  // nothing. `skip_special` leaves out tokens for which is_special().
  std::string decode(std::span<const TokenId> ids, bool skip_special = false) const;

  // Id of an added token by its text, e.g. "<｜User｜>". Ordinary tokens are not looked up.
  std::optional<TokenId> id_of(std::string_view token) const;

  int vocab_size() const;  // highest id + 1
  // Flagged `special` in the file: BOS, EOS, padding, image ...
  bool is_special(TokenId id) const;
  // Any added token: the special ones, and <think>, <｜User｜>, ｜DSML｜ ...
  bool is_added(TokenId id) const;

  // The added tokens in `text` and what lies between them, in order: for trusted literals
  // (chat_encoder.h).
  struct Part {
    std::optional<TokenId> added;  // set: this token
    std::string_view plain;        // else: text without any added token; a view into the argument
  };
  std::vector<Part> split_added(std::string_view text) const;

 private:
  explicit Tokenizer(TokenizerSpec spec);
  void encode_plain(std::string_view text, std::vector<TokenId>& out) const;

  std::string bytes_;                   // all tokens' bytes, one after another
  std::vector<std::uint32_t> offsets_;  // [vocab_size + 1] into bytes_
  std::vector<std::uint8_t> flags_;     // [vocab_size]
  std::unique_ptr<const AddedTokens> added_;
  std::unique_ptr<const Bpe> bpe_;
};

}  // namespace nibble::text
