// Generated tokens to chat output: reasoning, content with stop strings applied, tool calls. For the server and for
// `nibble run`.
#pragma once

#include <string>
#include <vector>

#include "api/stop_matcher.h"
#include "nibble/types.h"
#include "text/output_parser.h"

namespace nibble::api::openai {

// A function of the token stream: how the tokens were grouped into events changes neither the output nor the end.
class ChatStream {
 public:
  ChatStream(const text::ChatEncoder& encoder, const text::OutputParserOptions& parsing,
             std::vector<std::string> stop, bool one_tool_call)
      : parser_(encoder, parsing), stop_(std::move(stop)), one_tool_call_(one_tool_call) {}

  // One token. Nothing may be pushed once done().
  text::OutputDelta push(TokenId token);
  // The engine has finished: gives out what was held back.
  text::OutputDelta finish();

  // A stop string was found, or the only tool call allowed is complete: no further token is wanted.
  bool done() const { return stop_.matched() || (one_tool_call_ && parser_.tool_calls() > 0); }

  int tokens() const { return tokens_; }  // pushed
  int reasoning_tokens() const { return parser_.reasoning_tokens(); }
  int tool_calls() const { return parser_.tool_calls(); }

 private:
  text::OutputDelta shown(text::OutputDelta&& delta);

  text::OutputParser parser_;
  StopMatcher stop_;
  bool one_tool_call_;
  int tokens_ = 0;
};

}  // namespace nibble::api::openai
