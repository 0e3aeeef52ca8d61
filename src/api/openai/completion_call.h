// POST /v1/completions while it runs: one choice a prompt.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "api/call.h"
#include "api/openai/answer_parts.h"
#include "api/openai/completion_choice.h"
#include "api/openai/prepare.h"

namespace nibble::api::openai {

class CompletionCall final : public Call {
 public:
  // Submits all prompts; when one is refused, none runs. `client` and `model` must outlive the call.
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
  CompletionCall(AnswerHead head, CommonOptions&& options, std::size_t stream_limit_bytes)
      : head_(std::move(head)),
        options_(std::move(options)),
        stream_limit_bytes_(stream_limit_bytes) {}

  void changed();
  const ApiError* error() const;
  void write_object(JsonWriter& json, CompletionChoice* choice, std::size_t index);
  void append_end(std::string& out);
  TokenUsage usage() const;

  AnswerHead head_;
  CommonOptions options_;
  std::size_t stream_limit_bytes_;
  std::vector<std::unique_ptr<CompletionChoice>> choices_;
  bool overflowed_ = false;
  bool end_sent_ = false;
};

}  // namespace nibble::api::openai
