// Generated ids to what a chat client reads: reasoning, content, tool calls (deepseek-v4.md
// section 8.4).
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "nibble/types.h"
#include "text/chat_encoder.h"

namespace nibble::text {

// A complete call. It is given out when its closing tag has been read, never in fragments: only
// then is it known to be well formed. OpenAI's clients take it as one delta.
struct ParsedToolCall {
  int index = 0;   // 0, 1, ... within the answer
  std::string id;  // call_id_prefix + index
  std::string name;
  std::string arguments;  // a JSON object, valid
};

// What one push added. Each field is whole UTF-8 characters; the fields' order in the stream is:
// reasoning and content as they came, a call after all text before it.
struct OutputDelta {
  std::string reasoning;
  std::string content;
  std::vector<ParsedToolCall> tool_calls;

  bool empty() const { return reasoning.empty() && content.empty() && tool_calls.empty(); }
  void append(OutputDelta&& next);
};

struct OutputParserOptions {
  bool starts_in_reasoning = false;      // the prompt ended with <think> (thinking mode)
  std::vector<Tool> tools;               // the request's; empty: DSML is plain content
  std::string call_id_prefix = "call_";  // make it unique per answer
};

// A function of the id stream: the deltas joined do not depend on how the ids were grouped into
// pushes. Markers are recognised by id only. The same words spelled with ordinary tokens are text,
// everywhere: so a value may hold `</｜DSML｜parameter>` as text.
//
// Text is never lost and never doubled, markers never show:
//   - <think> and </think> switch between reasoning and content, however often and in whatever
//     mode they come.
//   - Other control tokens (BOS, <｜User｜>, ...) are dropped from reasoning and content.
//   - With tools: a call is recognised in content and inside reasoning, with or without the blank
//     line and the tool_calls tag around it, with other spacing between tags. The blank line
//     before the block belongs to the block.
//   - A call that cannot be delivered becomes text where it stands, NAME(KEY=VALUE, ...), and
//     counts in malformed_calls(): one that is cut off, has a tag missing or an unknown one inside,
//     a parameter twice, a string="false" value that is no JSON or not of the type its schema
//     names (null passes).
//   - string="true" values are byte-exact; control tokens inside a value are kept as their text,
//     special ones dropped.
//   - A single parameter `arguments` or `input` that holds a JSON object is unwrapped when the
//     tool is among the request's and its schema has no such parameter.
//   - A character cut by the end of the stream becomes one U+FFFD.
// One stream, one thread.
class OutputParser {
 public:
  // `encoder` must outlive this.
  OutputParser(const ChatEncoder& encoder, const OutputParserOptions& options);
  ~OutputParser();
  OutputParser(OutputParser&&) noexcept;
  OutputParser& operator=(OutputParser&&) noexcept;

  OutputDelta push(TokenId id);
  OutputDelta push(std::span<const TokenId> ids);
  OutputDelta finish();  // the end: gives out what was held back. Nothing may be pushed after it.

  int tool_calls()
      const;  // calls given out; > 0 and finished by a stop: finish_reason is "tool_calls"
  int malformed_calls() const;
  int reasoning_tokens() const;  // tokens of reasoning text so far, for usage

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace nibble::text
