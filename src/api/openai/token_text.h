// How a single token is written in log-probability lists.
#pragma once

#include <string>

#include "api/json_writer.h"
#include "nibble/types.h"
#include "text/tokenizer.h"

namespace nibble::api::openai {

// Its text; a token that is part of a character as "bytes:\xe6\xb7" (`prefix` "bytes:") or "\xe6\xb7" (""), so that two
// tokens never look alike for lack of the rest.
std::string token_text(const text::Tokenizer& tokenizer, TokenId id, bool as_id,
                       const char* prefix);

// JSON knows no infinity; this is what other servers print for a token that cannot come.
float printable_logprob(float logprob);

// One element of chat's logprobs.content: token, logprob, bytes, top_logprobs.
void write_chat_logprob(JsonWriter& json, const text::Tokenizer& tokenizer,
                        const GeneratedToken& token, bool as_id);

}  // namespace nibble::api::openai
