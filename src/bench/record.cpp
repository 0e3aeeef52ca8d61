#include "bench/record.h"

#include <fmt/format.h>

#include "api/json.h"

namespace nibble::bench {
namespace {

using api::Json;
using api::JsonDocument;

constexpr std::size_t kMessageBytes = 300;

std::optional<int> int_member(const Json& object, std::string_view name) {
  const Json* value = object.find(name);
  if (!value || !value->is(Json::Kind::kNumber)) return std::nullopt;
  const auto number = value->integer();
  return number ? std::optional<int>(static_cast<int>(*number)) : std::nullopt;
}

bool has_text(const Json& object, std::string_view name) {
  const Json* value = object.find(name);
  return value && value->is(Json::Kind::kString) && !value->string.empty();
}

// Text, thoughts or a call, in a chunk of chat (`delta`) or of completions (`text`).
bool brings_output(const Json& choice) {
  if (has_text(choice, "text")) return true;
  const Json* delta = choice.find("delta");
  if (!delta || !delta->is(Json::Kind::kObject)) return false;
  for (const char* name : {"content", "reasoning_content", "reasoning"})
    if (has_text(*delta, name)) return true;
  const Json* calls = delta->find("tool_calls");
  return calls && calls->is(Json::Kind::kArray) && !calls->items.empty();
}

// OpenAI's {"message", "type", "code"}.
struct ErrorObject {
  std::string kind, message;
};
ErrorObject read_error(const Json& error) {
  ErrorObject out;
  if (!error.is(Json::Kind::kObject)) return out;
  for (const char* name : {"code", "type"})
    if (out.kind.empty() && has_text(error, name)) out.kind = error.find(name)->string;
  if (has_text(error, "message")) out.message = error.find("message")->string;
  return out;
}

}  // namespace

std::optional<double> RequestRecord::first_token_ms() const {
  if (events.empty()) return std::nullopt;
  return (events.front().time_s - start_s) * 1e3;
}

void RequestRecord::add_token_gaps_ms(std::vector<Sample>& out) const {
  for (std::size_t i = 0; i < events.size(); ++i) {
    const double tokens = i == 0 ? events[i].tokens - 1.0 : events[i].tokens;
    if (tokens <= 0.0) continue;
    const double gap_s = i == 0 ? 0.0 : events[i].time_s - events[i - 1].time_s;
    out.push_back({gap_s * 1e3 / tokens, tokens});
  }
}

void RequestRecord::add_event_gaps_ms(std::vector<Sample>& out) const {
  for (std::size_t i = 1; i < events.size(); ++i)
    out.push_back({(events[i].time_s - events[i - 1].time_s) * 1e3, 1.0});
}

void StreamRecorder::fail(std::string kind, std::string message) {
  if (!record_.ok()) return;
  record_.error = std::move(kind);
  record_.message = std::move(message);
}

void StreamRecorder::on_event(std::string_view data, double now_s) {
  if (data == "[DONE]") {
    done_ = true;
    return;
  }
  const Result<JsonDocument> document = JsonDocument::parse(data);
  if (!document || !document->root().is(Json::Kind::kObject))
    return fail("damaged event", std::string(data.substr(0, kMessageBytes)));
  const Json& root = document->root();
  if (const Json* error = root.find("error")) {
    const ErrorObject read = read_error(*error);
    return fail("error in the stream" + (read.kind.empty() ? "" : ": " + read.kind), read.message);
  }
  const Json* choices = root.find("choices");
  const bool has_choice = choices && choices->is(Json::Kind::kArray) && !choices->items.empty();
  double tokens = has_choice && brings_output(choices->items.front()) ? 1.0 : 0.0;
  const Json* usage = root.find("usage");
  if (usage && usage->is(Json::Kind::kObject)) {
    record_.prompt_tokens = int_member(*usage, "prompt_tokens");
    record_.completion_tokens = int_member(*usage, "completion_tokens");
    const Json* details = usage->find("prompt_tokens_details");
    if (details && details->is(Json::Kind::kObject))
      record_.cached_tokens = int_member(*details, "cached_tokens");
    continuous_ = continuous_ || has_choice;
    if (continuous_) {
      const int total = record_.completion_tokens.value_or(counted_);
      tokens = total - counted_;
      counted_ = total;
    }
  }
  if (tokens > 0.0) record_.events.push_back({now_s, tokens});
}

void StreamRecorder::finish(double now_s) {
  record_.end_s = now_s;
  if (!done_) fail("stream without end", "the stream ended before data: [DONE]");
  const std::size_t events = record_.events.size();
  const int tokens = record_.completion_tokens.value_or(static_cast<int>(events));
  record_.tokens_exact =
      continuous_ || (record_.completion_tokens && static_cast<std::size_t>(tokens) == events);
  if (record_.tokens_exact || events == 0) return;
  for (TokenEvent& event : record_.events)
    event.tokens = static_cast<double>(tokens) / static_cast<double>(events);
}

void record_http_error(RequestRecord& record, int status, std::string_view body) {
  ErrorObject read;
  if (const Result<JsonDocument> document = JsonDocument::parse(body);
      document && document->root().is(Json::Kind::kObject))
    if (const Json* error = document->root().find("error")) read = read_error(*error);
  record.error = fmt::format("HTTP {}{}{}", status, read.kind.empty() ? "" : " ", read.kind);
  record.message = read.message.empty() ? std::string(body.substr(0, kMessageBytes)) : read.message;
}

}  // namespace nibble::bench
