// What was seen of one request, and how it is read out of the answer's stream.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/stats.h"

namespace nibble::bench {

// An event of a stream that brought tokens. Times are seconds on the run's clock.
struct TokenEvent {
  double time_s = 0.0;
  double tokens =
      0.0;  // a whole number where the server counts along, else a share; finish() says which
};

struct RequestRecord {
  int conversation = 0;
  int turn = 0;
  double start_s = 0.0;  // when it was due: waiting for a connection or for Retry-After counts
  double end_s = 0.0;    // its answer's last byte, or the failure
  std::vector<TokenEvent> events;
  bool tokens_exact = false;  // events[i].tokens are the server's own counts
  // From the answer's usage; nothing where the server sent none.
  std::optional<int> prompt_tokens;
  std::optional<int> cached_tokens;
  std::optional<int> completion_tokens;
  int rejected = 0;     // 429 and 503 that were answered before the one that counts
  std::string error;    // kind of failure, empty when the answer is whole
  std::string message;  // what the server or the system said about it

  bool ok() const { return error.empty(); }
  double end_to_end_ms() const { return (end_s - start_s) * 1e3; }
  // Nothing when no token came.
  std::optional<double> first_token_ms() const;
  // One sample a token after the first: an event of k tokens that comes g ms after the event before it gives g / k with
  // weight k; the tokens that share the first event gave their reader no wait and count as 0. So the mean is exactly
  // (last event - first event) / (tokens - 1).
  void add_token_gaps_ms(std::vector<Sample>& out) const;
  // One sample an event after the first, whatever it brought: what a reader waits.
  void add_event_gaps_ms(std::vector<Sample>& out) const;
};

// Fills a record from the JSON of a stream's events, of chat or of completions. One request, one thread.
class StreamRecorder {
 public:
  // `record` must outlive this.
  explicit StreamRecorder(RequestRecord& record) : record_(record) {}

  // The data of one event, at `now_s`.
  void on_event(std::string_view data, double now_s);
  // The answer has ended: settles how many tokens each event stood for. Where events carried usage
  // (continuous_usage_stats) these are the server's counts. Where they did not and there are as many events as tokens, each
  // was one. Else the tokens are spread evenly over the events, and tokens_exact stays false.
  void finish(double now_s);

 private:
  void fail(std::string kind, std::string message);

  RequestRecord& record_;
  bool continuous_ = false;
  int counted_ = 0;  // tokens in events so far, when continuous_
  bool done_ = false;
};

// Kind and message of a failure that came as an HTTP status; `body` is OpenAI's error object, or anything.
void record_http_error(RequestRecord& record, int status, std::string_view body);

}  // namespace nibble::bench
