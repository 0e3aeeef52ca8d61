#include <fmt/format.h>

#include <iterator>

#include "bench/report.h"

namespace nibble::bench {
namespace {

using Out = std::back_insert_iterator<std::string>;

std::string load_text(const LoadOptions& load) {
  if (load.rate > 0.0) return fmt::format("open loop, {} requests/s on average", load.rate);
  return fmt::format("closed loop, {} at once", load.concurrency);
}

void append_setup(Out out, const RunDescription& run) {
  const TraceOptions& trace = run.trace;
  fmt::format_to(out, "trace        {}, {} requests, seed {}; {}", trace_name(trace.kind),
                 trace.requests, trace.seed, run.text);
  if (run.warmup > 0) fmt::format_to(out, "; {} to warm up", run.warmup);
  fmt::format_to(out, "\nload         {}; at most {} tokens an answer, temperature {}{}\n",
                 load_text(run.load), run.load.max_tokens, run.load.temperature,
                 run.load.ignore_eos ? ", end-of-sequence ignored" : "");
}

void append_row(Out out, const char* name, const Summary& summary) {
  fmt::format_to(out, "{:<26} {:>9.2f} {:>9.2f} {:>9.2f} {:>9.2f} {:>9.2f}\n", name, summary.mean,
                 summary.p50, summary.p95, summary.p99, summary.max);
}

void append_server(Out out, const Report& report) {
  fmt::format_to(out, "\nserver       {}, model {}\n", report.server, report.model);
  fmt::format_to(out, "requests     {} answered, {} failed, in {:.2f} s ({:.2f} requests/s)\n",
                 report.succeeded, report.requests - report.succeeded, report.duration_s,
                 report.request_rate());
  for (const auto& [kind, count] : report.errors)
    fmt::format_to(out, "             {} x {}: {}\n", count, kind, report.messages.at(kind));
  if (report.rejected > 0)
    fmt::format_to(out, "             {} times told to come back later (429, 503)\n",
                   report.rejected);
  if (report.unsent > 0)
    fmt::format_to(out, "             {} not sent: the server was gone\n", report.unsent);
  fmt::format_to(out, "tokens       {} in prompts", report.prompt_tokens);
  if (report.knows_cached && report.prompt_tokens > 0)
    fmt::format_to(out, " ({:.1f} % from the cache)",
                   100.0 * static_cast<double>(report.cached_tokens) /
                       static_cast<double>(report.prompt_tokens));
  fmt::format_to(out, ", {} generated\n", report.completion_tokens);
  fmt::format_to(out, "throughput   {:.1f} tokens/s generated, {:.1f} with prompts\n",
                 report.output_rate(), report.total_rate());
  if (report.drafts && report.drafts->drafted > 0.0)
    fmt::format_to(out, "drafting     {:.0f} of {:.0f} drafted tokens accepted ({:.1f} %)\n",
                   report.drafts->accepted, report.drafts->drafted,
                   100.0 * report.drafts->accepted / report.drafts->drafted);
  fmt::format_to(out, "{:<26} {:>9} {:>9} {:>9} {:>9} {:>9}\n", "ms", "mean", "p50", "p95", "p99",
                 "max");
  append_row(out, "time to first token", report.first_token_ms);
  append_row(out, "inter-token", report.token_gap_ms);
  append_row(out, "between events", report.event_gap_ms);
  append_row(out, "whole request", report.end_to_end_ms);
  if (report.estimated_requests > 0)
    fmt::format_to(
        out,
        "inter-token: {} answers do not say how many tokens an event brought; theirs are "
        "spread evenly over the events\n",
        report.estimated_requests);
}

double ratio(double a, double b) {
  return b > 0.0 ? a / b : 0.0;
}

void append_ratios(Out out, const Report& a, const Report& b) {
  fmt::format_to(out,
                 "\nfirst server / second: tokens/s {:.3f}\n{:<26} {:>9} {:>9} {:>9} {:>9} {:>9}\n",
                 ratio(a.output_rate(), b.output_rate()), "", "mean", "p50", "p95", "p99", "max");
  const auto row = [&](const char* name, const Summary& x, const Summary& y) {
    append_row(out, name,
               {0.0, ratio(x.mean, y.mean), ratio(x.p50, y.p50), ratio(x.p95, y.p95),
                ratio(x.p99, y.p99), ratio(x.max, y.max)});
  };
  row("time to first token", a.first_token_ms, b.first_token_ms);
  row("inter-token", a.token_gap_ms, b.token_gap_ms);
  row("between events", a.event_gap_ms, b.event_gap_ms);
  row("whole request", a.end_to_end_ms, b.end_to_end_ms);
}

}  // namespace

std::string report_text(const RunDescription& run, const Report& report, const Report* baseline) {
  std::string text;
  const Out out = std::back_inserter(text);
  append_setup(out, run);
  append_server(out, report);
  if (baseline) {
    append_server(out, *baseline);
    append_ratios(out, report, *baseline);
  }
  return text;
}

}  // namespace nibble::bench
