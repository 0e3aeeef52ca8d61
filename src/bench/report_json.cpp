#include "api/json_writer.h"
#include "bench/report.h"

namespace nibble::bench {
namespace {

using api::JsonWriter;

void write_summary(JsonWriter& json, const char* name, const Summary& summary) {
  json.key(name).begin_object();
  json.key("mean").number(summary.mean).key("p50").number(summary.p50);
  json.key("p95").number(summary.p95).key("p99").number(summary.p99);
  json.key("max").number(summary.max).end_object();
}

void write_setup(JsonWriter& json, const RunDescription& run) {
  const TraceOptions& trace = run.trace;
  json.key("trace").begin_object().member("kind", trace_name(trace.kind));
  json.key("seed").number(trace.seed).member("requests", trace.requests);
  json.member("text", run.text).member("warmup", run.warmup).end_object();
  json.key("load").begin_object();
  if (run.load.rate > 0.0)
    json.key("rate").number(run.load.rate);
  else
    json.member("concurrency", run.load.concurrency);
  json.member("max_tokens", run.load.max_tokens);
  json.key("temperature").number(run.load.temperature).end_object();
}

void write_report(JsonWriter& json, const char* name, const Report& report) {
  json.key(name).begin_object();
  json.member("server", report.server).member("model", report.model);
  json.member("requests", report.requests).member("succeeded", report.succeeded);
  json.member("failed", report.requests - report.succeeded).member("unsent", report.unsent);
  json.member("rejected", report.rejected).key("errors").begin_object();
  for (const auto& [kind, count] : report.errors) json.member(kind, count);
  json.end_object().key("error_messages").begin_object();
  for (const auto& [kind, message] : report.messages) json.member(kind, message);
  json.end_object().key("duration_s").number(report.duration_s);
  json.member("prompt_tokens", report.prompt_tokens);
  json.key("cached_tokens");
  report.knows_cached ? json.number(report.cached_tokens) : json.null();
  json.member("completion_tokens", report.completion_tokens);
  json.key("output_tokens_per_s").number(report.output_rate());
  json.key("total_tokens_per_s").number(report.total_rate());
  json.key("requests_per_s").number(report.request_rate());
  if (report.drafts) {
    json.key("drafted_tokens").number(report.drafts->drafted);
    json.key("accepted_tokens").number(report.drafts->accepted);
  }
  json.member("requests_with_estimated_token_times", report.estimated_requests);
  write_summary(json, "time_to_first_token_ms", report.first_token_ms);
  write_summary(json, "inter_token_ms", report.token_gap_ms);
  write_summary(json, "between_events_ms", report.event_gap_ms);
  write_summary(json, "end_to_end_ms", report.end_to_end_ms);
  json.end_object();
}

void write_count(JsonWriter& json, const char* name, const std::optional<int>& count) {
  json.key(name);
  count ? json.number(*count) : json.null();
}

void write_record(JsonWriter& json, const RequestRecord& record) {
  json.begin_object().member("conversation", record.conversation).member("turn", record.turn);
  json.key("start_s").number(record.start_s).key("time_to_first_token_ms");
  const auto first = record.first_token_ms();
  first ? json.number(*first) : json.null();
  json.key("end_to_end_ms").number(record.end_to_end_ms());
  write_count(json, "prompt_tokens", record.prompt_tokens);
  write_count(json, "cached_tokens", record.cached_tokens);
  write_count(json, "completion_tokens", record.completion_tokens);
  json.member("events", static_cast<std::int64_t>(record.events.size()));
  json.member("rejected", record.rejected).key("error");
  record.ok() ? json.null() : json.string(record.error);
  json.end_object();
}

}  // namespace

std::string report_json(const RunDescription& run, const Report& report, const Report* baseline,
                        const std::vector<RequestRecord>& records) {
  std::string text;
  JsonWriter json(text);
  json.begin_object();
  write_setup(json, run);
  write_report(json, "results", report);
  if (baseline) write_report(json, "baseline", *baseline);
  json.key("requests").begin_array();
  for (const RequestRecord& record : records) write_record(json, record);
  json.end_array().end_object();
  return text;
}

}  // namespace nibble::bench
