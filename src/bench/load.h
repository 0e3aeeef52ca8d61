// Sends a trace to a server and writes down what came back.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "bench/http_client.h"
#include "bench/record.h"
#include "bench/trace.h"

namespace nibble::bench {

// A server as the probe found it (probe.h).
struct Target {
  Endpoint endpoint;
  std::string api_key;  // may be empty
  std::string model;
  std::string
      stream_options;  // JSON of the member, or empty: what it accepts of include_usage, continuous_usage_stats
};

struct LoadOptions {
  double rate =
      0.0;  // > 0: open loop, requests/s on average, conversations starting as a Poisson process
  int concurrency = 1;  // rate 0: closed loop, so many conversations at any time
  int max_connections = 1024;
  std::uint64_t seed = 1;  // of the arrival times, and of each request's sampling
  int max_tokens = 128;
  double temperature = 0.0;
  bool ignore_eos = false;   // a field that OpenAI's own servers do not know
  bool retry = false;        // 429 and 503 again after Retry-After, until timeout_s is over
  double timeout_s = 600.0;  // of a request, its retries included
};

struct LoadResult {
  std::vector<RequestRecord> records;  // in the order in which they ended
  double duration_s = 0.0;             // from the first request to the last one's end
  int unsent = 0;                      // requests given up because the server was gone
};

// `progress` (may be null) is called with the number of requests that have ended. A server that refuses connections several
// times on end is gone: nothing more is sent to it.
LoadResult run_load(const Target& target, const LoadOptions& options,
                    std::span<const Conversation> conversations,
                    const std::function<void(std::size_t)>& progress = nullptr);

// The body of one chat completion request.
std::string request_body(const Target& target, const LoadOptions& options,
                         const std::string& messages_json, std::uint64_t seed);

}  // namespace nibble::bench
