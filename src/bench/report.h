// What a run's records say, in numbers; then as a table for people and as JSON for machines.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/load.h"
#include "bench/metrics_text.h"
#include "bench/stats.h"

namespace nibble::bench {

struct Report {
  std::string server;  // URL
  std::string model;
  int requests = 0;   // sent
  int succeeded = 0;  // whole answers: what every number below counts, but errors and rejected
  int rejected = 0;   // 429 and 503
  int unsent = 0;
  std::map<std::string, int> errors;            // kind -> requests
  std::map<std::string, std::string> messages;  // kind -> what one of them said
  double duration_s = 0.0;
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;
  std::int64_t completion_tokens = 0;
  bool knows_cached = false;   // some answer's usage named cached tokens
  int estimated_requests = 0;  // whose events' tokens are an even share (StreamRecorder::finish)
  std::optional<DraftCounts> drafts;
  Summary first_token_ms, token_gap_ms, event_gap_ms, end_to_end_ms;

  bool failed() const { return succeeded < requests || unsent > 0; }
  double output_rate() const;   // tokens/s
  double total_rate() const;    // prompt tokens too
  double request_rate() const;  // 1/s
};

// `drafts`: what the server's counters grew by.
Report make_report(const Target& target, const LoadResult& result,
                   std::optional<DraftCounts> drafts);

// How a run was set up, for both forms.
struct RunDescription {
  TraceOptions trace;
  LoadOptions load;
  int warmup = 0;
  std::string text;  // where the words come from
};

// `baseline` may be null.
std::string report_text(const RunDescription& run, const Report& report, const Report* baseline);
// One line a request under "requests"; `records` are the first server's.
std::string report_json(const RunDescription& run, const Report& report, const Report* baseline,
                        const std::vector<RequestRecord>& records);

}  // namespace nibble::bench
