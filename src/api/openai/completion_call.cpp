#include "api/openai/completion_call.h"

#include <algorithm>

namespace nibble::api::openai {

Result<std::unique_ptr<Call>> CompletionCall::start(EngineClient& client, const ServedModel& model,
                                                    const std::string& served_name,
                                                    CompletionPlan plan, Clock::time_point arrived,
                                                    std::size_t stream_limit_bytes) {
  AnswerHead head = make_answer_head("cmpl-", served_name, model.engine->info().fingerprint);
  std::unique_ptr<CompletionCall> call(
      new CompletionCall(std::move(head), std::move(plan.options), stream_limit_bytes));
  for (Request& request : plan.requests) {
    call->choices_.push_back(
        std::make_unique<CompletionChoice>(*model.tokenizer, call->options_, plan.echo,
                                           request.prompt, [raw = call.get()] { raw->changed(); }));
    Result<Generation> generation =
        client.submit(std::move(request), *call->choices_.back(), arrived);
    if (!generation) return generation.status();
    call->choices_.back()->own(std::move(generation).value());
  }
  return std::unique_ptr<Call>(std::move(call));
}

void CompletionCall::changed() {
  std::size_t unread_bytes = 0;
  for (const auto& choice : choices_) unread_bytes += choice->unread_bytes();
  if (error()) {
    abandon("another prompt of the request failed");
  } else if (options_.stream && !finished() && unread_bytes > stream_limit_bytes_) {
    abandon("the client reads too slowly");
    overflowed_ = true;
  }
  progressed();
}

const ApiError* CompletionCall::error() const {
  for (const auto& choice : choices_)
    if (choice->error()) return &*choice->error();
  return nullptr;
}

bool CompletionCall::finished() const {
  if (overflowed_ || error()) return true;
  return std::all_of(choices_.begin(), choices_.end(),
                     [](const auto& choice) { return choice->finished(); });
}

void CompletionCall::abandon(const char* reason) {
  for (const auto& choice : choices_) choice->abandon(reason);
}

TokenUsage CompletionCall::usage() const {
  TokenUsage sum;
  for (const auto& choice : choices_) {
    sum.prompt += choice->prompt_tokens();
    sum.cached += choice->cached_tokens();
    sum.completion += choice->completion_tokens();
  }
  return sum;
}

// A stream's object for one choice, or, without one, its last: usage alone.
void CompletionCall::write_object(JsonWriter& json, CompletionChoice* choice, std::size_t index) {
  json.begin_object();
  write_answer_head(json, head_, "text_completion");
  json.key("choices").begin_array();
  if (choice) {
    json.begin_object().member("index", static_cast<std::int64_t>(index));
    choice->take(json);
    json.end_object();
  }
  json.end_array();
  if (!choice || options_.usage_in_chunks)
    write_usage(json, usage());
  else if (options_.include_usage)
    json.key("usage").null();
  json.end_object();
}

std::string CompletionCall::take_events() {
  std::string out;
  for (std::size_t i = 0; i < choices_.size() && !error(); ++i) {
    if (!choices_[i]->has_news()) continue;
    std::string chunk;
    JsonWriter json(chunk);
    write_object(json, choices_[i].get(), i);
    append_sse_event(out, chunk);
  }
  if (finished() && !end_sent_) append_end(out);
  return out;
}

void CompletionCall::append_end(std::string& out) {
  end_sent_ = true;
  if (const ApiError* failure = error()) {
    append_sse_event(out, error_json(*failure));
  } else if (options_.include_usage) {
    std::string chunk;
    JsonWriter json(chunk);
    write_object(json, nullptr, 0);
    append_sse_event(out, chunk);
  }
  append_sse_event(out, "[DONE]");
}

HttpResponse CompletionCall::response() {
  if (const ApiError* failure = error()) return error_response(*failure);
  HttpResponse response;
  JsonWriter json(response.body);
  json.begin_object();
  write_answer_head(json, head_, "text_completion");
  json.key("choices").begin_array();
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    json.begin_object().member("index", static_cast<std::int64_t>(i));
    choices_[i]->take(json);
    json.end_object();
  }
  json.end_array();
  write_usage(json, usage());
  json.end_object();
  return response;
}

}  // namespace nibble::api::openai
