#include "bench/probe.h"

#include <fmt/format.h>

#include <vector>

#include "api/json.h"
#include "nibble/status.h"

namespace nibble::bench {
namespace {

constexpr double kProbeTimeout_s = 60.0;

struct Answer {
  HttpResult result;
  std::string body;

  bool ok() const { return result.outcome == HttpOutcome::kComplete && result.status == 200; }
};

Answer ask(const Endpoint& endpoint, HttpCall call) {
  EventLoop loop;
  HttpClient client(loop, endpoint, 1);
  Answer answer;
  call.timeout_s = kProbeTimeout_s;
  call.on_body = [&](int, std::string_view bytes) { answer.body += bytes; };
  call.on_end = [&](const HttpResult& result) { answer.result = result; };
  client.send(std::move(call));
  loop.run();
  return answer;
}

Answer get(const Endpoint& endpoint, const std::string& api_key, std::string path) {
  HttpCall call;
  call.path = std::move(path);
  call.bearer = api_key;
  return ask(endpoint, std::move(call));
}

[[noreturn]] void fail(const Endpoint& endpoint, const std::string& what) {
  throw Error(ExitCode::kFailed, fmt::format("{}: {}", endpoint.text(), what));
}

// What the server said, or what kept it from saying anything.
std::string reason(const Answer& answer) {
  if (answer.result.outcome == HttpOutcome::kRefused)
    return "connection refused: no server listens there";
  if (answer.result.outcome != HttpOutcome::kComplete) return answer.result.message;
  RequestRecord record;
  record_http_error(record, answer.result.status, answer.body);
  return fmt::format("{}: {}", record.error, record.message);
}

std::vector<std::string> served_models(const Answer& answer) {
  std::vector<std::string> names;
  const Result<api::JsonDocument> document = api::JsonDocument::parse(answer.body);
  if (!document) return names;
  const api::Json* data = document->root().find("data");
  if (!data) return names;
  for (const api::Json& model : data->items)
    if (const api::Json* id = model.find("id"); id && id->is(api::Json::Kind::kString))
      names.emplace_back(id->string);
  return names;
}

std::string choose_model(const Endpoint& endpoint, const Answer& answer,
                         const std::string& wanted) {
  if (!answer.ok()) fail(endpoint, reason(answer));
  const std::vector<std::string> names = served_models(answer);
  if (wanted.empty()) {
    if (names.empty()) fail(endpoint, "/v1/models lists no model; name one with --model");
    return names.front();
  }
  for (const std::string& name : names)
    if (name == wanted) return wanted;
  fail(endpoint, fmt::format("there is no model '{}'; served: {}", wanted, fmt::join(names, ", ")));
}

}  // namespace

Target probe(const std::string& url, const std::string& api_key, const std::string& model) {
  Target target;
  target.endpoint = parse_endpoint(url);
  target.api_key = api_key;
  target.model = choose_model(target.endpoint, get(target.endpoint, api_key, "/v1/models"), model);
  LoadOptions options;
  options.max_tokens = 1;
  Answer answer;
  for (const char* stream_options : {R"({"include_usage":true,"continuous_usage_stats":true})",
                                     R"({"include_usage":true})", ""}) {
    target.stream_options = stream_options;
    HttpCall call;
    call.method = "POST";
    call.path = "/v1/chat/completions";
    call.bearer = api_key;
    call.body = request_body(target, options, R"([{"role":"user","content":"Hello"}])", 0);
    answer = ask(target.endpoint, std::move(call));
    if (answer.ok()) return target;
    if (answer.result.status != 400 && answer.result.status != 422) break;
  }
  fail(target.endpoint, reason(answer));
}

std::optional<DraftCounts> read_draft_counts(const Target& target) {
  const Answer answer = get(target.endpoint, target.api_key, "/metrics");
  return answer.ok() ? draft_counts(answer.body) : std::nullopt;
}

}  // namespace nibble::bench
