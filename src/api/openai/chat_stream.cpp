#include "api/openai/chat_stream.h"

namespace nibble::api::openai {

text::OutputDelta ChatStream::push(TokenId token) {
  ++tokens_;
  return shown(parser_.push(token));
}

text::OutputDelta ChatStream::finish() {
  if (stop_.matched()) return {};
  text::OutputDelta delta = shown(parser_.finish());
  if (!stop_.matched()) delta.content += stop_.flush();
  return delta;
}

// Stop strings look at content alone: thinking is not what the client reads, and a call is one piece.
text::OutputDelta ChatStream::shown(text::OutputDelta&& delta) {
  if (stop_.matched()) return {};
  delta.content = stop_.push(delta.content);
  if (stop_.matched())
    delta.tool_calls.clear();
  else if (!delta.tool_calls.empty())
    delta.content += stop_.flush();
  if (one_tool_call_ && delta.tool_calls.size() > 1) delta.tool_calls.resize(1);
  return delta;
}

}  // namespace nibble::api::openai
