// POST /v1/completions, from JSON to a typed request.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "api/json.h"
#include "api/openai/sampling_fields.h"
#include "nibble/types.h"

namespace nibble::api::openai {

// Text, or token ids as they are.
using Prompt = std::variant<std::string, std::vector<TokenId>>;

struct CompletionBody {
  CommonOptions options;
  std::vector<Prompt> prompts;  // each becomes options.n choices, in this order; kMaxChoices in all
  int max_tokens = 16;          // 0: nothing is generated
  bool echo = false;            // the choice's text begins with the prompt's
  bool add_special_tokens = false;  // put BOS in front of text prompts
};

// Throws RequestError (400) naming the field. Ids are whole numbers >= 0; the vocabulary is checked when encoding.
CompletionBody read_completion_body(const Json& root, const GenerationDefaults& defaults);

// A JSON array of token ids.
std::vector<TokenId> read_token_ids(const Json& array, const std::string& path);

}  // namespace nibble::api::openai
