#include "api/openai/token_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/utf8.h"

namespace nibble::api::openai {
namespace {

constexpr float kLowest = -9999.0f;

void write_entry(JsonWriter& json, const text::Tokenizer& tokenizer, TokenId id, float logprob,
                 bool as_id) {
  json.member("token", token_text(tokenizer, id, as_id, ""));
  json.key("logprob").number(printable_logprob(logprob));
  json.key("bytes").begin_array();
  for (const char byte : tokenizer.token_bytes(id))
    json.number(static_cast<int>(static_cast<unsigned char>(byte)));
  json.end_array();
}

}  // namespace

std::string token_text(const text::Tokenizer& tokenizer, TokenId id, bool as_id,
                       const char* prefix) {
  if (as_id) return fmt::format("token_id:{}", id);
  const std::string_view bytes = tokenizer.token_bytes(id);
  if (!text::first_invalid_utf8(bytes)) return std::string(bytes);
  std::string out = prefix;
  for (const char byte : bytes) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
  return out;
}

float printable_logprob(float logprob) {
  return std::max(logprob, kLowest);
}

void write_chat_logprob(JsonWriter& json, const text::Tokenizer& tokenizer,
                        const GeneratedToken& token, bool as_id) {
  json.begin_object();
  write_entry(json, tokenizer, token.token, token.logprob.value_or(kLowest), as_id);
  json.key("top_logprobs").begin_array();
  for (const TokenLogprob& other : token.top) {
    json.begin_object();
    write_entry(json, tokenizer, other.token, other.logprob, as_id);
    json.end_object();
  }
  json.end_array().end_object();
}

}  // namespace nibble::api::openai
