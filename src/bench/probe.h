// Looks at a server before a run: that it is there, what it serves, what it can count.
#pragma once

#include <optional>
#include <string>

#include "bench/load.h"
#include "bench/metrics_text.h"

namespace nibble::bench {

// `model` empty: the only one, or the first, that the server lists. Sends one request of one token, to learn which
// stream_options it accepts. Throws Error(kFailed) with what is wrong: nobody listens, a key is needed, no such model,
// still loading, no chat completions.
Target probe(const std::string& url, const std::string& api_key, const std::string& model);

// Nothing when the server has no such counters, or does not answer.
std::optional<DraftCounts> read_draft_counts(const Target& target);

}  // namespace nibble::bench
