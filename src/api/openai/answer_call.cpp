#include "api/openai/answer_call.h"

#include <fmt/format.h>

#include <algorithm>

#include "api/openai/chat_choice.h"
#include "api/openai/completion_choice.h"

namespace nibble::api::openai {

const AnswerCall::Names AnswerCall::kChat = {"chatcmpl-", "chat.completion",
                                             "chat.completion.chunk"};
const AnswerCall::Names AnswerCall::kCompletion = {"cmpl-", "text_completion", "text_completion"};

AnswerCall::AnswerCall(const Names& names, const ServedModel& model, const std::string& served_name,
                       CommonOptions&& options, std::size_t stream_limit_bytes)
    : names_(names),
      head_(make_answer_head(names.id_prefix, served_name, model.engine->info().fingerprint)),
      options_(std::move(options)),
      stream_limit_bytes_(stream_limit_bytes) {}

Result<std::unique_ptr<Call>> AnswerCall::start(EngineClient& client, const ServedModel& model,
                                                const std::string& served_name, ChatPlan plan,
                                                Clock::time_point arrived,
                                                std::size_t stream_limit_bytes) {
  std::unique_ptr<AnswerCall> call(
      new AnswerCall(kChat, model, served_name, std::move(plan.options), stream_limit_bytes));
  const std::string answer = call->head_.id.substr(call->head_.id.find('-') + 1);
  for (int i = 0; i < static_cast<int>(plan.requests.size()); ++i) {
    plan.parsing.call_id_prefix = fmt::format("call_{}_{}_", answer, i);
    call->choices_.push_back(std::make_unique<ChatChoice>(i, *model.tokenizer, *model.encoder,
                                                          call->options_, plan.parsing,
                                                          plan.one_tool_call, call->notice()));
  }
  return submit(std::move(call), client, std::move(plan.requests), arrived);
}

Result<std::unique_ptr<Call>> AnswerCall::start(EngineClient& client, const ServedModel& model,
                                                const std::string& served_name, CompletionPlan plan,
                                                Clock::time_point arrived,
                                                std::size_t stream_limit_bytes) {
  std::unique_ptr<AnswerCall> call(
      new AnswerCall(kCompletion, model, served_name, std::move(plan.options), stream_limit_bytes));
  for (int i = 0; const Request& request : plan.requests)
    call->choices_.push_back(std::make_unique<CompletionChoice>(
        i++, *model.tokenizer, call->options_, plan.echo, request.prompt, call->notice()));
  return submit(std::move(call), client, std::move(plan.requests), arrived);
}

Result<std::unique_ptr<Call>> AnswerCall::submit(std::unique_ptr<AnswerCall> call,
                                                 EngineClient& client,
                                                 std::vector<Request> requests,
                                                 Clock::time_point arrived) {
  std::vector<EventSink*> sinks;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    sinks.push_back(call->choices_[i].get());
    if (call->first_of_its_prompt(i))
      call->prompt_tokens_ += static_cast<int>(requests[i].prompt.size());
  }
  Result<std::vector<Generation>> generations = client.submit(std::move(requests), sinks, arrived);
  if (!generations) return generations.status();
  for (std::size_t i = 0; i < sinks.size(); ++i)
    call->choices_[i]->own(std::move(generations.value()[i]));
  return std::unique_ptr<Call>(std::move(call));
}

void AnswerCall::changed() {
  std::size_t unread_bytes = 0;
  for (const auto& choice : choices_) unread_bytes += choice->unread_bytes();
  if (error()) {
    abandon("another choice of the answer failed");
  } else if (options_.stream && !finished() && unread_bytes > stream_limit_bytes_) {
    abandon("the client reads too slowly");
    overflowed_ = true;
  }
  progressed();
}

const ApiError* AnswerCall::error() const {
  for (const auto& choice : choices_)
    if (choice->error()) return &*choice->error();
  return nullptr;
}

bool AnswerCall::finished() const {
  if (overflowed_ || error()) return true;
  return std::all_of(choices_.begin(), choices_.end(),
                     [](const auto& choice) { return choice->finished(); });
}

void AnswerCall::abandon(const char* reason) {
  for (const auto& choice : choices_) choice->abandon(reason);
}

bool AnswerCall::first_of_its_prompt(std::size_t choice) const {
  return choice % static_cast<std::size_t>(options_.n) == 0;
}

TokenUsage AnswerCall::usage() const {
  TokenUsage sum;
  sum.prompt = prompt_tokens_;
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    const Choice& choice = *choices_[i];
    sum.completion += choice.completion_tokens();
    if (first_of_its_prompt(i)) sum.cached += choice.cached_tokens();
    if (const auto reasoning = choice.reasoning_tokens())
      sum.reasoning = sum.reasoning.value_or(0) + *reasoning;
  }
  return sum;
}

// A stream's object for one choice, or, without one, its last: usage alone.
void AnswerCall::append_chunk(std::string& out, const std::string* choice_object) const {
  std::string chunk;
  JsonWriter json(chunk);
  json.begin_object();
  write_answer_head(json, head_, names_.chunk);
  json.key("choices").begin_array();
  if (choice_object) json.raw(*choice_object);
  json.end_array();
  if (!choice_object || options_.usage_in_chunks)
    write_usage(json, usage());
  else if (options_.include_usage)
    json.key("usage").null();
  json.end_object();
  append_sse_event(out, chunk);
}

std::string AnswerCall::take_events() {
  std::string out;
  std::vector<std::string> objects;
  if (!error())
    for (const auto& choice : choices_) choice->take_chunks(objects);
  for (const std::string& object : objects) append_chunk(out, &object);
  if (finished() && !end_sent_) append_end(out);
  return out;
}

void AnswerCall::append_end(std::string& out) {
  end_sent_ = true;
  if (const ApiError* failure = error())
    append_sse_event(out, error_json(*failure));
  else if (options_.include_usage)
    append_chunk(out, nullptr);
  append_sse_event(out, "[DONE]");
}

HttpResponse AnswerCall::response() {
  if (const ApiError* failure = error()) return error_response(*failure);
  HttpResponse response;
  JsonWriter json(response.body);
  json.begin_object();
  write_answer_head(json, head_, names_.whole);
  json.key("choices").begin_array();
  for (const auto& choice : choices_) choice->write_whole(json);
  json.end_array();
  write_usage(json, usage());
  json.end_object();
  return response;
}

}  // namespace nibble::api::openai
