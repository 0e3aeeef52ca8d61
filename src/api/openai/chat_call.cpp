#include "api/openai/chat_call.h"

#include "api/openai/token_text.h"

namespace nibble::api::openai {
namespace {

std::size_t size_of(const text::OutputDelta& delta) {
  std::size_t bytes = delta.reasoning.size() + delta.content.size();
  for (const text::ParsedToolCall& call : delta.tool_calls)
    bytes += call.name.size() + call.arguments.size();
  return bytes;
}

std::string json_quoted(const std::string& text) {
  std::string out;
  append_json_string(out, text);
  return out;
}

}  // namespace

Result<std::unique_ptr<Call>> ChatCall::start(EngineClient& client, const ServedModel& model,
                                              const std::string& served_name, ChatPlan plan,
                                              Clock::time_point arrived,
                                              std::size_t stream_limit_bytes) {
  AnswerHead head = make_answer_head("chatcmpl-", served_name, model.engine->info().fingerprint);
  plan.parsing.call_id_prefix = "call_" + head.id.substr(head.id.find('-') + 1) + "_";
  Request request = std::move(plan.request);
  std::unique_ptr<ChatCall> call(
      new ChatCall(model, std::move(head), std::move(plan), stream_limit_bytes));
  Result<Generation> generation = client.submit(std::move(request), *call, arrived);
  if (!generation) return generation.status();
  call->generation_ = std::move(generation).value();
  return std::unique_ptr<Call>(std::move(call));
}

ChatCall::ChatCall(const ServedModel& model, AnswerHead head, ChatPlan&& plan,
                   std::size_t stream_limit_bytes)
    : tokenizer_(*model.tokenizer),
      head_(std::move(head)),
      options_(std::move(plan.options)),
      thinking_(plan.parsing.starts_in_reasoning),
      stream_limit_bytes_(stream_limit_bytes),
      stream_(*model.encoder, plan.parsing, options_.stop, plan.one_tool_call) {}

void ChatCall::on_event(Event&& event) {
  engine_usage_ = event.usage;
  for (const GeneratedToken& token : event.tokens) {
    take_token(token);
    if (stream_.done()) break;
  }
  if (stream_.done()) {
    // Tokens that came in the same step as the end do not count: how steps cut the stream must not show.
    generation_.stop();
    finish_reason_ = stream_.tool_calls() > 0 ? "tool_calls" : "stop";
    completion_tokens_ = stream_.tokens();
    finished_ = true;
  } else if (event.finished) {
    finish(event);
  } else if (options_.stream &&
             size_of(pending_) + pending_logprobs_.size() > stream_limit_bytes_) {
    generation_.abandon("the client reads too slowly");
    overflowed_ = finished_ = true;
  }
  progressed();
}

void ChatCall::take_token(const GeneratedToken& token) {
  pending_.append(stream_.push(token.token));
  if (options_.sampling.logprobs < 0) return;
  if (!pending_logprobs_.empty()) pending_logprobs_ += ',';
  JsonWriter json(pending_logprobs_);
  write_chat_logprob(json, tokenizer_, token, options_.tokens_as_ids);
}

void ChatCall::finish(const Event& event) {
  finished_ = true;
  if (*event.finished == FinishReason::kError) {
    error_ = api_error(event.error);
    return;
  }
  if (*event.finished == FinishReason::kCancelled) {
    error_ = api_error({StatusCode::kUnavailable, "the server is stopping", ""});
    return;
  }
  pending_.append(stream_.finish());
  // A stop string may be complete only now, with text the parser had held back.
  const bool cut = *event.finished == FinishReason::kLength && !stream_.done();
  finish_reason_ = cut ? "length" : stream_.tool_calls() > 0 ? "tool_calls" : "stop";
  completion_tokens_ = event.usage.completion_tokens;
}

TokenUsage ChatCall::usage() const {
  return {engine_usage_.prompt_tokens, engine_usage_.cached_tokens,
          finished_ ? completion_tokens_ : stream_.tokens(), stream_.reasoning_tokens()};
}

void ChatCall::write_tool_calls(JsonWriter& json, bool with_index) const {
  json.begin_array();
  for (const text::ParsedToolCall& call : pending_.tool_calls) {
    json.begin_object();
    if (with_index) json.member("index", call.index);
    json.member("id", call.id).member("type", "function").key("function").begin_object();
    json.member("name", call.name).member("arguments", call.arguments).end_object().end_object();
  }
  json.end_array();
}

// One chunk object with one member in its delta; `field` null: an empty delta.
void ChatCall::append_chunk_event(std::string& out, const char* field,
                                  const std::string& value_json, bool finishing) {
  std::string chunk;
  JsonWriter json(chunk);
  json.begin_object();
  write_answer_head(json, head_, "chat.completion.chunk");
  json.key("choices").begin_array().begin_object().member("index", 0).key("delta").begin_object();
  if (!role_sent_) json.member("role", "assistant");
  if (field) json.key(field).raw(value_json);
  json.end_object().key("logprobs");
  if (pending_logprobs_.empty())
    json.null();
  else
    json.begin_object().key("content").raw("[" + pending_logprobs_ + "]").end_object();
  json.key("finish_reason");
  finishing ? json.string(finish_reason_) : json.null();
  json.end_object().end_array();
  if (options_.usage_in_chunks)
    write_usage(json, usage());
  else if (options_.include_usage)
    json.key("usage").null();
  json.end_object();
  append_sse_event(out, chunk);
  pending_logprobs_.clear();
  role_sent_ = true;
}

std::string ChatCall::take_events() {
  std::string out;
  if (!pending_.reasoning.empty())
    append_chunk_event(out, "reasoning_content", json_quoted(pending_.reasoning), false);
  if (!pending_.content.empty())
    append_chunk_event(out, "content", json_quoted(pending_.content), false);
  if (!pending_.tool_calls.empty()) {
    std::string calls;
    JsonWriter json(calls);
    write_tool_calls(json, true);
    append_chunk_event(out, "tool_calls", calls, false);
  }
  pending_ = {};
  if (finished_ && !end_sent_) append_end(out);
  return out;
}

void ChatCall::append_end(std::string& out) {
  end_sent_ = true;
  if (error_) {
    append_sse_event(out, error_json(*error_));
    append_sse_event(out, "[DONE]");
    return;
  }
  append_chunk_event(out, role_sent_ ? nullptr : "content", "\"\"", true);
  if (options_.include_usage) {
    std::string chunk;
    JsonWriter json(chunk);
    json.begin_object();
    write_answer_head(json, head_, "chat.completion.chunk");
    json.key("choices").begin_array().end_array();
    write_usage(json, usage());
    json.end_object();
    append_sse_event(out, chunk);
  }
  append_sse_event(out, "[DONE]");
}

HttpResponse ChatCall::response() {
  if (error_) return error_response(*error_);
  HttpResponse response;
  JsonWriter json(response.body);
  json.begin_object();
  write_answer_head(json, head_, "chat.completion");
  json.key("choices").begin_array().begin_object().member("index", 0);
  json.key("message").begin_object().member("role", "assistant").key("content");
  // OpenAI's clients expect null, not "", beside a bare call.
  pending_.content.empty() && !pending_.tool_calls.empty() ? json.null()
                                                           : json.string(pending_.content);
  if (thinking_ || !pending_.reasoning.empty())
    json.member("reasoning_content", pending_.reasoning);
  if (!pending_.tool_calls.empty()) {
    json.key("tool_calls");
    write_tool_calls(json, false);
  }
  json.end_object().key("logprobs");
  if (options_.sampling.logprobs < 0)
    json.null();
  else
    json.begin_object().key("content").raw("[" + pending_logprobs_ + "]").end_object();
  json.member("finish_reason", finish_reason_).end_object().end_array();
  write_usage(json, usage());
  json.end_object();
  return response;
}

}  // namespace nibble::api::openai
