// POST /v1/chat/completions, from JSON to a typed request.
#pragma once

#include <string>
#include <vector>

#include "api/json.h"
#include "api/openai/sampling_fields.h"
#include "text/chat_encoder.h"

namespace nibble::api::openai {

struct ChatBody {
  CommonOptions options;
  text::ChatRequest chat;  // `thinking` is left to resolve_thinking()
  text::ThinkingSwitches switches;
  bool one_tool_call = false;  // parallel_tool_calls is false: stop after the first call
  int max_tokens = -1;         // -1: as many as the context holds
};

// Throws RequestError (400) naming the field.
ChatBody read_chat_body(const Json& root, const GenerationDefaults& defaults);

// `messages` alone, for /tokenize too. `path` is where the array stands.
std::vector<text::Message> read_messages(const Json& array, const std::string& path);

// OpenAI's `tools` array.
std::vector<text::Tool> read_tools(const Json& array, const std::string& path);

// thinking, reasoning_effort and chat_template_kwargs.
text::ThinkingSwitches read_thinking_switches(Fields& body);

}  // namespace nibble::api::openai
