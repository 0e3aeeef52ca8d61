#include "text/detokenizer.h"

namespace nibble::text {

Detokenizer::Detokenizer(const Tokenizer& tokenizer, bool skip_special)
    : tokenizer_(&tokenizer), skip_special_(skip_special) {}

std::string Detokenizer::push(TokenId id) {
  if (skip_special_ && tokenizer_->is_special(id)) return "";
  return assembler_.push(tokenizer_->token_bytes(id));
}

std::string Detokenizer::push(std::span<const TokenId> ids) {
  std::string out;
  for (const TokenId id : ids) out += push(id);
  return out;
}

std::string Detokenizer::finish() {
  return assembler_.finish();
}

}  // namespace nibble::text
