// POST /v1/chat/completions while it runs: tokens in, OpenAI's chat objects out.
#pragma once

#include <memory>
#include <string>

#include "api/call.h"
#include "api/engine_client.h"
#include "api/errors.h"
#include "api/openai/answer_parts.h"
#include "api/openai/chat_stream.h"
#include "api/openai/prepare.h"

namespace nibble::api::openai {

class ChatCall final : public Call, private EventSink {
 public:
  // Submits. `client` and `model` must outlive the call.
  static Result<std::unique_ptr<Call>> start(EngineClient& client, const ServedModel& model,
                                             const std::string& served_name, ChatPlan plan,
                                             Clock::time_point arrived,
                                             std::size_t stream_limit_bytes);

  bool streams() const override { return options_.stream; }
  bool finished() const override { return finished_; }
  std::string take_events() override;
  bool overflowed() const override { return overflowed_; }
  HttpResponse response() override;
  void abandon(const char* reason) override { generation_.abandon(reason); }

 private:
  ChatCall(const ServedModel& model, AnswerHead head, ChatPlan&& plan,
           std::size_t stream_limit_bytes);

  void on_event(Event&& event) override;
  void take_token(const GeneratedToken& token);
  void finish(const Event& event);
  void append_chunk_event(std::string& out, const char* field, const std::string& value_json,
                          bool finishing);
  void append_end(std::string& out);
  void write_tool_calls(JsonWriter& json, bool with_index) const;
  TokenUsage usage() const;

  const text::Tokenizer& tokenizer_;
  AnswerHead head_;
  CommonOptions options_;
  bool thinking_;
  std::size_t stream_limit_bytes_;
  ChatStream stream_;
  Generation generation_;

  text::OutputDelta pending_;     // streams: not taken yet; others: the whole answer
  std::string pending_logprobs_;  // JSON objects joined by commas, as pending_
  bool role_sent_ = false;
  bool end_sent_ = false;
  bool finished_ = false;
  bool overflowed_ = false;
  std::string finish_reason_;
  std::optional<ApiError> error_;
  Usage engine_usage_;
  int completion_tokens_ = 0;
};

}  // namespace nibble::api::openai
