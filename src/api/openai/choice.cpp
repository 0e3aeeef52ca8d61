#include "api/openai/choice.h"

namespace nibble::api::openai {

void Choice::on_event(Event&& event) {
  cached_tokens_ = event.usage.cached_tokens;
  if (!event.prompt.empty()) add_prompt(event.prompt);
  bool complete = false;
  for (const GeneratedToken& token : event.tokens) {
    ++completion_tokens_;
    complete = add_token(token);
    // Tokens that came in the same step as the end do not count: how steps cut the stream must not show.
    if (complete) break;
  }
  if (complete) {
    generation_.stop();
    end(natural_end());
  } else if (event.finished) {
    finish(event);
  }
  changed_();
}

void Choice::finish(const Event& event) {
  const FinishReason reason = *event.finished;
  if (reason == FinishReason::kError) {
    error_ = api_error(event.error);
  } else if (reason == FinishReason::kCancelled) {
    error_ = api_error({StatusCode::kUnavailable, "the server is stopping", ""});
  } else {
    const bool complete = flush();
    end(reason == FinishReason::kLength && !complete ? "length" : natural_end());
  }
  finished_ = true;
}

void Choice::end(const char* reason) {
  finish_reason_ = reason;
  finished_ = true;
}

}  // namespace nibble::api::openai
