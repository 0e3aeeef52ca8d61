// One choice of a chat: reasoning, content and tool calls, their log-probabilities, its end.
#pragma once

#include <string>

#include "api/openai/chat_stream.h"
#include "api/openai/choice.h"
#include "api/openai/sampling_fields.h"
#include "text/tokenizer.h"

namespace nibble::api::openai {

class ChatChoice final : public Choice {
 public:
  // `tokenizer`, `encoder` and `options` must outlive this.
  ChatChoice(int index, const text::Tokenizer& tokenizer, const text::ChatEncoder& encoder,
             const CommonOptions& options, const text::OutputParserOptions& parsing,
             bool one_tool_call, std::function<void()> changed);

  std::optional<int> reasoning_tokens() const override { return stream_.reasoning_tokens(); }
  std::size_t unread_bytes() const override;
  void take_chunks(std::vector<std::string>& objects) override;
  void write_whole(JsonWriter& json) override;

 private:
  bool add_token(const GeneratedToken& token) override;
  bool flush() override;
  const char* natural_end() const override;
  void append_chunk(std::vector<std::string>& objects, const char* field,
                    const std::string& value_json, bool last);
  void write_tool_calls(JsonWriter& json, bool with_index) const;

  const text::Tokenizer& tokenizer_;
  const CommonOptions& options_;
  bool thinking_;
  ChatStream stream_;

  text::OutputDelta pending_;     // streams: not taken yet; others: the whole answer
  std::string pending_logprobs_;  // JSON objects joined by commas, as pending_
  bool role_taken_ = false;
  bool end_taken_ = false;
};

}  // namespace nibble::api::openai
