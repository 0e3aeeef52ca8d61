// One choice of a completion: its text, its log-probability lists, its end.
#pragma once

#include <string>
#include <vector>

#include "api/openai/choice.h"
#include "api/openai/sampling_fields.h"
#include "api/stop_matcher.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace nibble::api::openai {

class CompletionChoice final : public Choice {
 public:
  // `options`, `tokenizer` must outlive this. `echo`: the prompt's text comes first; with log-probabilities it waits for the
  // engine's list of them.
  CompletionChoice(int index, const text::Tokenizer& tokenizer, const CommonOptions& options,
                   bool echo, const std::vector<TokenId>& prompt, std::function<void()> changed);

  std::size_t unread_bytes() const override {
    return text_.size() + lists_.tokens.size() + lists_.top.size();
  }
  void take_chunks(std::vector<std::string>& objects) override;
  void write_whole(JsonWriter& json) override;

 private:
  // The four arrays of OpenAI's completion log-probabilities, elements joined by commas.
  struct Lists {
    std::string tokens, logprobs, top, offsets;
  };

  void add_prompt(const std::vector<GeneratedToken>& tokens) override;
  bool add_token(const GeneratedToken& token) override;
  bool flush() override;
  void show(std::string piece);
  void add_logprob(const GeneratedToken& token);

  const text::Tokenizer& tokenizer_;
  const CommonOptions& options_;
  bool prompt_awaited_;
  text::Utf8Assembler assembler_;
  StopMatcher stop_;

  std::string text_;
  Lists lists_;
  std::size_t characters_ = 0;  // whole ones so far, shown or held back: the next token's offset
  bool end_taken_ = false;
};

}  // namespace nibble::api::openai
