#include "bench/report.h"

namespace nibble::bench {
namespace {

double per(double amount, double whole) {
  return whole > 0.0 ? amount / whole : 0.0;
}

}  // namespace

double Report::output_rate() const {
  return per(static_cast<double>(completion_tokens), duration_s);
}

double Report::total_rate() const {
  return per(static_cast<double>(prompt_tokens + completion_tokens), duration_s);
}

double Report::request_rate() const {
  return per(succeeded, duration_s);
}

Report make_report(const Target& target, const LoadResult& result,
                   std::optional<DraftCounts> drafts) {
  Report report;
  report.server = target.endpoint.text();
  report.model = target.model;
  report.requests = static_cast<int>(result.records.size());
  report.unsent = result.unsent;
  report.duration_s = result.duration_s;
  report.drafts = drafts;
  std::vector<Sample> first_token, token_gaps, event_gaps, end_to_end;
  for (const RequestRecord& record : result.records) {
    report.rejected += record.rejected;
    if (!record.ok()) {
      ++report.errors[record.error];
      report.messages.emplace(record.error, record.message);
      continue;
    }
    ++report.succeeded;
    report.prompt_tokens += record.prompt_tokens.value_or(0);
    report.cached_tokens += record.cached_tokens.value_or(0);
    report.knows_cached = report.knows_cached || record.cached_tokens;
    report.completion_tokens +=
        record.completion_tokens.value_or(static_cast<int>(record.events.size()));
    if (!record.tokens_exact && !record.events.empty()) ++report.estimated_requests;
    if (const auto first = record.first_token_ms()) first_token.push_back({*first, 1.0});
    record.add_token_gaps_ms(token_gaps);
    record.add_event_gaps_ms(event_gaps);
    end_to_end.push_back({record.end_to_end_ms(), 1.0});
  }
  report.first_token_ms = summarize(std::move(first_token));
  report.token_gap_ms = summarize(std::move(token_gaps));
  report.event_gap_ms = summarize(std::move(event_gaps));
  report.end_to_end_ms = summarize(std::move(end_to_end));
  return report;
}

}  // namespace nibble::bench
