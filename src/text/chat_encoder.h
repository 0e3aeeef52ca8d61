// Chat messages to token ids.
// Grammar: deepseek-v4.md section 8.3, profiles preview and 0731.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "nibble/status.h"
#include "nibble/types.h"
#include "text/encoder_profile.h"
#include "text/tokenizer.h"

namespace nibble::text {

// kDeveloper is DeepSeek's internal role: rendered as a user turn, gone once a user turn follows and
// reasoning is dropped. What OpenAI's clients call `developer` is a system message: use kSystem.
enum class Role { kSystem, kDeveloper, kUser, kAssistant, kTool, kLatestReminder };

// One part of a message's content. Plain string content is one part of type "text".
// Parts are joined by blank lines; a part of another type is rendered as "[Unsupported TYPE]".
struct ContentPart {
  std::string type = "text";
  std::string text;
};

// A tool the model may call: OpenAI's bare `function` object as JSON text (any spacing; key order
// and number spelling are kept, spacing becomes Python's).
struct Tool {
  std::string function_json;
};

struct ToolCall {
  std::string id;
  std::string name;
  // JSON text: the content of OpenAI's `arguments` string, or the text of an object given directly.
  // "" and "null": no parameters. JSON of another kind than an object becomes one string parameter
  // `arguments`.
  std::string arguments;
};

struct Message {
  Role role = Role::kUser;
  std::vector<ContentPart> content;
  std::string reasoning_content;               // assistant
  std::vector<ToolCall> tool_calls;            // assistant
  std::string tool_call_id;                    // tool
  std::string name;                            // accepted, not rendered
  std::vector<Tool> tools;                     // system and developer
  std::optional<std::string> response_format;  // system and developer; JSON text
  std::string task;                            // user; a key of EncoderProfile::task_tokens
  bool without_eos = false;                    // assistant: leave the turn open, to be continued
};

struct ChatRequest {
  std::vector<Message> messages = {};
  // OpenAI's request fields; they are attached to the first system message, or to an empty one made
  // in front.
  std::vector<Tool> tools = {};
  std::optional<std::string> response_format = {};  // JSON text of the schema to follow
  Thinking thinking = {};                           // from resolve_thinking()
  bool drop_thinking = true;  // earlier turns lose their reasoning (never when a message has tools)
};

// Immutable; usable from any thread at once.
class ChatEncoder {
 public:
  // `tokenizer` must outlive this and stay in its place. Throws CheckpointError when it lacks a
  // control token the grammar needs.
  ChatEncoder(const Tokenizer& tokenizer, EncoderProfile profile);

  const EncoderProfile& profile() const { return profile_; }

  // The prompt for the next assistant turn: BOS first, `<｜Assistant｜>` and `<think>` or
  // `</think>` last. Control ids occur only where the grammar puts them; everything from the
  // request is plain text. Text between two control tokens is tokenised as one run, so the ids are
  // those of the rendered string whenever the request spells no control token.
  //
  // kInvalidArgument, with `param` like "messages[2].tool_calls[0].arguments": no messages, invalid
  // UTF-8, broken JSON, unknown task, an empty developer message, tools / response format / effort
  // for which the checkpoint has no text.
  Result<std::vector<TokenId>> encode(const ChatRequest& request) const;

  // The ids as they are usually read, control tokens by their text. For logs and tests.
  std::string render(const std::vector<TokenId>& ids) const { return tokenizer_->decode(ids); }

  struct ControlIds {
    TokenId bos = 0, eos = 0, user = 0, assistant = 0, think_start = 0, think_end = 0, dsml = 0;
    std::optional<TokenId> latest_reminder;
  };
  const ControlIds& control() const { return control_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }

 private:
  const Tokenizer* tokenizer_;
  EncoderProfile profile_;
  ControlIds control_;
};

}  // namespace nibble::text
