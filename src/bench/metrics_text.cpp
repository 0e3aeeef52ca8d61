#include "bench/metrics_text.h"

#include <cstdlib>
#include <string>

namespace nibble::bench {

std::optional<double> metric_value(std::string_view text, std::string_view name) {
  std::optional<double> sum;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!line.starts_with(name)) continue;
    line.remove_prefix(name.size());
    if (line.starts_with('{')) {
      // Label values may hold braces, but then a quote follows.
      const std::size_t labels = line.rfind("} ");
      if (labels == std::string_view::npos) continue;
      line.remove_prefix(labels + 1);
    }
    if (!line.starts_with(' ')) continue;  // a longer name
    sum = sum.value_or(0.0) + std::strtod(std::string(line).c_str(), nullptr);
  }
  return sum;
}

std::optional<DraftCounts> draft_counts(std::string_view text) {
  constexpr std::string_view kNames[][2] = {
      {"nibble:draft_tokens_total", "nibble:draft_tokens_accepted_total"},
      {"vllm:spec_decode_num_draft_tokens_total", "vllm:spec_decode_num_accepted_tokens_total"},
  };
  for (const auto& [drafted, accepted] : kNames) {
    const auto a = metric_value(text, drafted), b = metric_value(text, accepted);
    if (a && b) return DraftCounts{*a, *b};
  }
  return std::nullopt;
}

}  // namespace nibble::bench
