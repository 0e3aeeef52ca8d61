// HTTP/1.1 over many connections on one thread: what the load generator needs and no more.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace nibble::bench {

// Where a server is, from an http:// URL. A path in it is put in front of what is asked for, but for the "/v1" that many
// write at the end: the paths asked for have it.
struct Endpoint {
  std::string host;
  std::string port;
  std::string path;  // without a slash at the end; may be empty

  std::string authority() const;  // HOST:PORT, brackets around an IPv6 address
  std::string text() const;       // the URL again
};

// Throws Error(kUsage) for anything but http://HOST[:PORT][/PATH]; https is refused by name.
Endpoint parse_endpoint(const std::string& url);

// The thread's clock, timers and sockets.
class EventLoop {
 public:
  EventLoop();
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  double now_s() const;  // since the loop was made, steady
  void at(double time_s,
          std::function<void()> work);  // once, in run(); a time that is over means soon
  void run();                           // until nothing is waited for

  struct State;
  State& state() { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

enum class HttpOutcome {
  kComplete,     // the whole answer, of whatever status
  kRefused,      // nobody listens there
  kUnreachable,  // no connection for another reason
  kClosed,       // the connection ended before the answer did
  kTimeout,      // the call's time was over
  kDamaged,      // not HTTP/1.1
};

struct HttpResult {
  HttpOutcome outcome = HttpOutcome::kComplete;
  int status = 0;         // 0: no head arrived
  int retry_after_s = 0;  // of the answer; 0: none
  std::string message;    // the system's word for a failure
};

struct HttpCall {
  std::string method = "GET";
  std::string path;  // after Endpoint::path
  std::string body;  // JSON; empty: none is sent
  std::string bearer;
  double timeout_s = 60.0;  // for everything from send() on
  // Called on the loop's thread. on_body gets the body as it arrives, chunk framing removed, after the status is known.
  std::function<void(int status, std::string_view bytes)> on_body;
  std::function<void(const HttpResult&)> on_end;  // once, last
};

// Connections are kept and used again. At most `max_connections` at once: further calls wait their turn.
class HttpClient {
 public:
  // Throws Error(kFailed) when the host's name is unknown. `loop` must outlive this.
  HttpClient(EventLoop& loop, Endpoint endpoint, int max_connections);
  ~HttpClient();  // calls that have not ended end without a word
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  void send(HttpCall call);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace nibble::bench
