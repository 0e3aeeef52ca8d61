// Ids to text as they come: for /v1/completions streams and `nibble run` without chat.
#pragma once

#include <span>
#include <string>

#include "nibble/types.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace nibble::text {

// The pieces joined are Tokenizer::decode() of all ids, for every way of cutting the ids. One
// stream, one thread.
class Detokenizer {
 public:
  // `tokenizer` must outlive this. skip_special: tokens with is_special() add nothing.
  explicit Detokenizer(const Tokenizer& tokenizer, bool skip_special = true);

  std::string push(TokenId id);  // whole characters, "" while one is incomplete
  std::string push(std::span<const TokenId> ids);
  std::string finish();  // the end: "" or one U+FFFD for a character cut by it

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  Utf8Assembler assembler_;
};

}  // namespace nibble::text
