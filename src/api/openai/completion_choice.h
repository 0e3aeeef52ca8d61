// One choice of a completion: its text, its log-probability lists, its end.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "api/engine_client.h"
#include "api/errors.h"
#include "api/json_writer.h"
#include "api/openai/sampling_fields.h"
#include "api/stop_matcher.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace nibble::api::openai {

class CompletionChoice final : public EventSink {
 public:
  // `options`, `tokenizer` must outlive this. `echo`: the prompt's text comes first; with log-probabilities it waits for the
  // engine's list of them. `changed` is called after each event.
  CompletionChoice(const text::Tokenizer& tokenizer, const CommonOptions& options, bool echo,
                   const std::vector<TokenId>& prompt, std::function<void()> changed);

  void own(Generation generation) { generation_ = std::move(generation); }
  void abandon(const char* reason) { generation_.abandon(reason); }
  void on_event(Event&& event) override;

  bool finished() const { return finished_; }
  const std::optional<ApiError>& error() const { return error_; }
  int prompt_tokens() const { return prompt_tokens_; }
  int cached_tokens() const { return cached_tokens_; }
  int completion_tokens() const { return completion_tokens_; }

  // Streams: something to write, or the end that is not written yet.
  bool has_news() const {
    return !text_.empty() || !lists_.tokens.empty() || (finished_ && !end_taken_);
  }
  std::size_t unread_bytes() const {
    return text_.size() + lists_.tokens.size() + lists_.top.size();
  }
  // The members of a choice object, for all that came since the last call; finish_reason is null before the end.
  void take(JsonWriter& json);

 private:
  // The four arrays of OpenAI's completion log-probabilities, elements joined by commas.
  struct Lists {
    std::string tokens, logprobs, top, offsets;
  };

  void show(std::string piece);
  void add_prompt(const std::vector<GeneratedToken>& tokens);
  void add_token(const GeneratedToken& token);
  void add_logprob(const GeneratedToken& token);
  void finish(const Event& event);
  void end(const char* reason);

  const text::Tokenizer& tokenizer_;
  const CommonOptions& options_;
  std::function<void()> changed_;
  bool prompt_awaited_;
  Generation generation_;
  text::Utf8Assembler assembler_;
  StopMatcher stop_;

  std::string text_;
  Lists lists_;
  std::size_t characters_ = 0;  // whole ones so far, shown or held back: the next token's offset
  bool finished_ = false;
  bool end_taken_ = false;
  const char* finish_reason_ = "";
  std::optional<ApiError> error_;
  int prompt_tokens_;
  int cached_tokens_ = 0;
  int completion_tokens_ = 0;  // tokens looked at
};

}  // namespace nibble::api::openai
