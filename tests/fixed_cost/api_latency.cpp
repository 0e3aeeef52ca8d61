// What the server adds between a token leaving the engine and its event on a client's socket, over many streams at once:
//
//     fixed_cost_server --event-log LOG ... &   api_latency URL --streams 256 --tokens 500; stop the server
//     api_latency --join LOG --times TIMES
//
// In two parts because the server writes its log when it stops. Both processes read the same clock.
#include <fmt/os.h>
#include <CLI/CLI.hpp>

#include <chrono>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "api/json.h"
#include "bench/http_client.h"
#include "bench/sse_reader.h"
#include "bench/stats.h"

namespace nibble::fixed_cost {
namespace {

constexpr std::size_t kTokenBytes = 4;  // of the server's text

struct Arrival {
  int seed = 0;
  int tokens = 0;  // so far, with this event
  std::int64_t time_ns = 0;
};

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Streams' events as they arrive, all on one thread.
class Streams {
 public:
  Streams(const std::string& url, int streams, int tokens)
      : client_(loop_, bench::parse_endpoint(url), streams), tokens_(tokens) {
    for (int i = 0; i < streams; ++i) start(i + 1);
  }

  std::vector<Arrival> run() {
    loop_.run();
    return std::move(arrivals_);
  }

 private:
  void start(int seed) {
    struct Stream {
      std::size_t bytes = 0;
      std::unique_ptr<bench::SseReader> reader;
    };
    auto stream = std::make_shared<Stream>();
    stream->reader =
        std::make_unique<bench::SseReader>([this, seed, raw = stream.get()](auto data) {
          const auto document = api::JsonDocument::parse(data);
          if (!document) return;
          const api::Json* choices = document->root().find("choices");
          if (!choices || choices->items.empty()) return;
          const api::Json* delta = choices->items[0].find("delta");
          const api::Json* content = delta ? delta->find("content") : nullptr;
          if (!content || content->string.empty()) return;
          raw->bytes += content->string.size();
          arrivals_.push_back({seed, static_cast<int>(raw->bytes / kTokenBytes), read_ns_});
        });
    bench::HttpCall call;
    call.method = "POST";
    call.path = "/v1/chat/completions";
    call.timeout_s = 600.0;
    call.body = fmt::format(
        R"({{"messages":[{{"role":"user","content":"Stream {}."}}],"max_tokens":{},"temperature":1,)"
        R"("seed":{},"ignore_eos":true,"stream":true}})",
        seed, tokens_, seed);
    call.on_body = [this, stream](int, std::string_view bytes) {
      read_ns_ = now_ns();
      stream->reader->push(bytes);
    };
    call.on_end = [this, stream, seed](const bench::HttpResult& result) {
      const bool whole = result.outcome == bench::HttpOutcome::kComplete && result.status == 200 &&
                         stream->bytes == static_cast<std::size_t>(tokens_) * kTokenBytes;
      if (!whole)
        throw std::runtime_error(fmt::format("stream {}: status {}, {} bytes of text; {}", seed,
                                             result.status, stream->bytes, result.message));
    };
    client_.send(std::move(call));
  }

  bench::EventLoop loop_;
  bench::HttpClient client_;
  int tokens_;
  std::int64_t read_ns_ = 0;  // of the bytes being looked at
  std::vector<Arrival> arrivals_;
};

void write_arrivals(const std::vector<Arrival>& arrivals, const std::string& path) {
  auto out = fmt::output_file(path);
  for (const Arrival& arrival : arrivals)
    out.print("{} {} {}\n", arrival.seed, arrival.tokens, arrival.time_ns);
}

std::vector<Arrival> read_arrivals(const std::string& path) {
  std::ifstream file(path);
  std::vector<Arrival> arrivals;
  Arrival arrival;
  while (file >> arrival.seed >> arrival.tokens >> arrival.time_ns) arrivals.push_back(arrival);
  return arrivals;
}

// Each token's time from the engine to the client, but for the first tenth of a stream's: while the others still begin.
bench::Summary join(const std::vector<Arrival>& left, const std::vector<Arrival>& arrived) {
  std::map<int, std::vector<std::int64_t>> left_ns;  // [seed][token - 1]
  for (const Arrival& event : left)
    left_ns[event.seed].resize(static_cast<std::size_t>(event.tokens), event.time_ns);
  std::vector<bench::Sample> samples;
  std::map<int, int> seen;
  for (const Arrival& event : arrived) {
    const std::vector<std::int64_t>& times = left_ns.at(event.seed);
    for (int& token = seen[event.seed]; token < event.tokens; ++token)
      if (static_cast<std::size_t>(token) >= times.size() / 10)
        samples.push_back(
            {static_cast<double>(event.time_ns - times.at(static_cast<std::size_t>(token))) * 1e-6,
             1.0});
  }
  return bench::summarize(std::move(samples));
}

}  // namespace
}  // namespace nibble::fixed_cost

int main(int argc, char** argv) {
  using namespace nibble;
  std::string url, log, times;
  int streams = 256, tokens = 500;
  CLI::App app("time between a token leaving the engine and its event at a client");
  app.add_option("URL", url, "the server to load; with --times the arrivals are written there");
  app.add_option("--streams", streams);
  app.add_option("--tokens", tokens, "of each stream");
  app.add_option("--times", times, "file of the arrivals")->required();
  app.add_option("--join", log,
                 "the server's --event-log, once it has stopped: print the latencies");
  CLI11_PARSE(app, argc, argv);
  try {
    if (!url.empty())
      fixed_cost::write_arrivals(fixed_cost::Streams(url, streams, tokens).run(), times);
    if (log.empty()) return 0;
    const bench::Summary ms =
        fixed_cost::join(fixed_cost::read_arrivals(log), fixed_cost::read_arrivals(times));
    fmt::print("{:.0f} tokens: mean {:.3f} p50 {:.3f} p95 {:.3f} p99 {:.3f} max {:.3f} ms\n",
               ms.count, ms.mean, ms.p50, ms.p95, ms.p99, ms.max);
  } catch (const std::exception& error) {
    std::cerr << "api_latency: " << error.what() << "\n";
    return 1;
  }
  return 0;
}
