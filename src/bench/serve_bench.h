// `nibble bench serve`: one trace, one server or two.
#pragma once

#include <functional>
#include <string>

#include "bench/report.h"

namespace nibble::bench {

struct ServeBenchOptions {
  std::string url = "http://127.0.0.1:8000";
  std::string baseline;  // URL of a second server; empty: none
  std::string model;     // empty: what the server lists first
  std::string baseline_model;
  std::string api_key;
  std::string text_file;  // empty: made-up sentences
  TraceOptions trace;
  LoadOptions load;
  int warmup = 0;  // requests before the measured ones, of the same kind and another seed
};

struct ServeBench {
  RunDescription run;
  Report report;
  std::optional<Report> baseline;
  std::vector<RequestRecord> records;  // of the first server
};

// With a baseline the trace is cut into blocks, and each block goes to the first server, then to the second: whatever the
// machine does besides meets both. `progress` (may be null): share done, 0..1. Throws Error: bad usage, or a server that
// cannot take the trace at all (probe()).
ServeBench run_serve_bench(const ServeBenchOptions& options,
                           const std::function<void(double)>& progress);

}  // namespace nibble::bench
