// Counters out of a server's /metrics.
#pragma once

#include <optional>
#include <string_view>

namespace nibble::bench {

// The sum over all label sets of one metric in Prometheus' text format. Nothing when it is not there.
std::optional<double> metric_value(std::string_view text, std::string_view name);

// Drafted and accepted tokens since the server's start, under nibble's names or vLLM's.
struct DraftCounts {
  double drafted = 0.0;
  double accepted = 0.0;
};
std::optional<DraftCounts> draft_counts(std::string_view text);

}  // namespace nibble::bench
