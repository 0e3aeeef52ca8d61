// The part of a request that chat and completions share: how to sample, when to stop, how to answer.
#pragma once

#include <string>
#include <vector>

#include "api/generation_defaults.h"
#include "api/openai/fields.h"
#include "nibble/types.h"

namespace nibble::api::openai {

inline constexpr int kMaxLogprobs = 20;
inline constexpr std::size_t kMaxLogitBias = 4096;
inline constexpr std::size_t kMaxChoices = 128;  // of one request, all prompts together
inline constexpr std::size_t kMaxStops = 16;
inline constexpr std::size_t kMaxStopBytes = 4096;

struct CommonOptions {
  std::string model;              // empty: not in the request
  SamplingParams sampling;        // logprobs and max_tokens are the endpoint's to fill
  int n = 1;                      // choices for each prompt
  std::vector<std::string> stop;  // not empty strings
  std::string cache_salt;         // computed prefixes are shared under the same one only
  bool stream = false;
  bool include_usage = false;    // stream_options.include_usage
  bool usage_in_chunks = false;  // stream_options.continuous_usage_stats
  bool tokens_as_ids =
      false;  // return_tokens_as_token_ids: "token_id:N" in place of a token's text
};

// Reads model, n, the sampling parameters (token ids of logit_bias are not held against the vocabulary here), stop, stream,
// stream_options, return_tokens_as_token_ids; checks the neutral fields both endpoints know and skips those that cannot change the answer. Without a seed a random one is drawn.
CommonOptions read_common(Fields& body, const GenerationDefaults& defaults);

}  // namespace nibble::api::openai
