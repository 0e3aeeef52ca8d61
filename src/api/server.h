// The HTTP server: one io thread, a loader thread, and what a process does around them.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "api/served_model.h"
#include "api/service.h"
#include "nibble/status.h"

namespace nibble::api {

// What a client may take of the server's memory and time.
struct ConnectionLimits {
  std::size_t header_bytes = 16 << 10;
  std::size_t body_bytes = 8 << 20;
  std::size_t read_ahead_bytes = 64 << 10;        // of the next request while one is being answered
  std::chrono::milliseconds idle_timeout{75000};  // between requests
  std::chrono::milliseconds header_timeout{
      10000};  // from a request's first byte to the end of its headers
  std::chrono::milliseconds body_timeout{120000};    // from there to the end of its body
  std::chrono::milliseconds write_timeout{30000};    // without a byte taken
  std::chrono::milliseconds comment_interval{8000};  // between bytes of a stream
  std::chrono::milliseconds linger_timeout{2000};  // a refused body is read and dropped for so long
};

struct ServerOptions {
  std::string host = "127.0.0.1";
  int port = 8000;  // 0: any free one
  int max_connections = 1024;
  ConnectionLimits limits;
  std::chrono::milliseconds drain_timeout{30000};
  std::chrono::milliseconds tick{500};  // how often timeouts are looked at
  ServiceOptions service;
};

using LoadProgress = std::function<void(double)>;
// Runs on a thread of its own. May throw Error. `progress` throws LoadCancelled when the server is asked to stop.
using LoadModel = std::function<std::unique_ptr<ServedModel>(const LoadProgress& progress)>;

struct LoadCancelled {};

// Both are called on the io thread or by run() itself, and may be empty.
struct ServerEvents {
  std::function<void(const ServedModel&)> ready;  // once, when requests are taken
  // The stop cannot wait: a second signal came, or loading does not end. A process may exit here; otherwise run() joins.
  std::function<void()> leave;
};

class Server {
 public:
  // Opens the port. Throws Error(kFailed) that names it when it is in use or the address is not this machine's.
  explicit Server(ServerOptions options);
  ~Server();

  int port() const;
  std::string url() const;  // "http://127.0.0.1:8000"

  // Answers from now on and loads the model beside that. Returns after stop(), SIGTERM or SIGINT: at once without requests,
  // else when they have finished or drain_timeout is over; a second signal cuts them off. Rethrows what `load` threw; throws DeviceLost
  // when the engine has failed, after its requests were told so.
  void run(LoadModel load, ServerEvents events);

  // As a signal does. Any thread.
  void stop();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace nibble::api
