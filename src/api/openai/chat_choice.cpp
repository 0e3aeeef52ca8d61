#include "api/openai/chat_choice.h"

#include "api/openai/token_text.h"

namespace nibble::api::openai {
namespace {

std::string json_quoted(const std::string& text) {
  std::string out;
  append_json_string(out, text);
  return out;
}

void write_logprobs(JsonWriter& json, bool wanted, const std::string& entries) {
  json.key("logprobs");
  if (wanted)
    json.begin_object().key("content").raw("[" + entries + "]").end_object();
  else
    json.null();
}

}  // namespace

ChatChoice::ChatChoice(int index, const text::Tokenizer& tokenizer,
                       const text::ChatEncoder& encoder, const CommonOptions& options,
                       const text::OutputParserOptions& parsing, bool one_tool_call,
                       std::function<void()> changed)
    : Choice(index, std::move(changed)),
      tokenizer_(tokenizer),
      options_(options),
      thinking_(parsing.starts_in_reasoning),
      stream_(encoder, parsing, options.stop, one_tool_call) {}

bool ChatChoice::add_token(const GeneratedToken& token) {
  pending_.append(stream_.push(token.token));
  if (options_.sampling.logprobs >= 0) {
    if (!pending_logprobs_.empty()) pending_logprobs_ += ',';
    JsonWriter json(pending_logprobs_);
    write_chat_logprob(json, tokenizer_, token, options_.tokens_as_ids);
  }
  return stream_.done();
}

// A stop string may be complete only now, with text the parser had held back.
bool ChatChoice::flush() {
  pending_.append(stream_.finish());
  return stream_.done();
}

const char* ChatChoice::natural_end() const {
  return stream_.tool_calls() > 0 ? "tool_calls" : "stop";
}

std::size_t ChatChoice::unread_bytes() const {
  std::size_t bytes =
      pending_.reasoning.size() + pending_.content.size() + pending_logprobs_.size();
  for (const text::ParsedToolCall& call : pending_.tool_calls)
    bytes += call.name.size() + call.arguments.size();
  return bytes;
}

void ChatChoice::write_tool_calls(JsonWriter& json, bool with_index) const {
  json.begin_array();
  for (const text::ParsedToolCall& call : pending_.tool_calls) {
    json.begin_object();
    if (with_index) json.member("index", call.index);
    json.member("id", call.id).member("type", "function").key("function").begin_object();
    json.member("name", call.name).member("arguments", call.arguments).end_object().end_object();
  }
  json.end_array();
}

// A choice object with one member in its delta; `field` null: an empty delta.
void ChatChoice::append_chunk(std::vector<std::string>& objects, const char* field,
                              const std::string& value_json, bool last) {
  JsonWriter json(objects.emplace_back());
  json.begin_object().member("index", index()).key("delta").begin_object();
  if (!role_taken_) json.member("role", "assistant");
  if (field) json.key(field).raw(value_json);
  json.end_object();
  write_logprobs(json, !pending_logprobs_.empty(), pending_logprobs_);
  json.key("finish_reason");
  last ? json.string(finish_reason()) : json.null();
  json.end_object();
  pending_logprobs_.clear();
  role_taken_ = true;
}

void ChatChoice::take_chunks(std::vector<std::string>& objects) {
  if (!pending_.reasoning.empty())
    append_chunk(objects, "reasoning_content", json_quoted(pending_.reasoning), false);
  if (!pending_.content.empty())
    append_chunk(objects, "content", json_quoted(pending_.content), false);
  if (!pending_.tool_calls.empty()) {
    std::string calls;
    JsonWriter json(calls);
    write_tool_calls(json, true);
    append_chunk(objects, "tool_calls", calls, false);
  }
  pending_ = {};
  if (!finished() || end_taken_) return;
  end_taken_ = true;
  append_chunk(objects, role_taken_ ? nullptr : "content", "\"\"", true);
}

void ChatChoice::write_whole(JsonWriter& json) {
  json.begin_object().member("index", index());
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
  json.end_object();
  write_logprobs(json, options_.sampling.logprobs >= 0, pending_logprobs_);
  json.member("finish_reason", finish_reason()).end_object();
}

}  // namespace nibble::api::openai
