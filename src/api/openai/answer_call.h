// POST /v1/chat/completions or /v1/completions while it runs: an answer of one or more choices.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "api/call.h"
#include "api/openai/answer_parts.h"
#include "api/openai/choice.h"
#include "api/openai/prepare.h"

namespace nibble::api::openai {

class AnswerCall final : public Call {
 public:
  // Submits a request for each choice; when one is refused, none runs. `client` and `model` must outlive the call.
  static Result<std::unique_ptr<Call>> start(EngineClient& client, const ServedModel& model,
                                             const std::string& served_name, ChatPlan plan,
                                             Clock::time_point arrived,
                                             std::size_t stream_limit_bytes);
  static Result<std::unique_ptr<Call>> start(EngineClient& client, const ServedModel& model,
                                             const std::string& served_name, CompletionPlan plan,
                                             Clock::time_point arrived,
                                             std::size_t stream_limit_bytes);

  bool streams() const override { return options_.stream; }
  bool finished() const override;
  std::string take_events() override;
  bool overflowed() const override { return overflowed_; }
  HttpResponse response() override;
  void abandon(const char* reason) override;

 private:
  // What the protocol calls the objects of an answer.
  struct Names {
    const char* id_prefix;
    const char* whole;
    const char* chunk;
  };
  static const Names kChat;
  static const Names kCompletion;

  AnswerCall(const Names& names, const ServedModel& model, const std::string& served_name,
             CommonOptions&& options, std::size_t stream_limit_bytes);

  static Result<std::unique_ptr<Call>> submit(std::unique_ptr<AnswerCall> call,
                                              EngineClient& client, std::vector<Request> requests,
                                              Clock::time_point arrived);
  std::function<void()> notice() {
    return [this] { changed(); };
  }
  void changed();
  const ApiError* error() const;
  bool first_of_its_prompt(std::size_t choice) const;
  TokenUsage usage() const;
  void append_chunk(std::string& out, const std::string* choice_object) const;
  void append_end(std::string& out);

  const Names& names_;
  AnswerHead head_;
  CommonOptions options_;
  std::size_t stream_limit_bytes_;
  std::vector<std::unique_ptr<Choice>> choices_;  // those of one prompt after those of another
  int prompt_tokens_ = 0;                         // each prompt once
  bool overflowed_ = false;
  bool end_sent_ = false;
};

}  // namespace nibble::api::openai
