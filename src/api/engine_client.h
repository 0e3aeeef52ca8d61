// The server's side of the two queues: requests go in, events come back to whoever asked.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "api/metrics.h"
#include "nibble/engine.h"

namespace nibble::api {

// Runs a function on the io thread, later. Callable from any thread.
using PostToIo = std::function<void(std::function<void()>)>;
using Clock = std::chrono::steady_clock;

// Receives one request's events, on the io thread. May end its own generation while in the call.
class EventSink {
 public:
  virtual ~EventSink() = default;
  virtual void on_event(Event&& event) = 0;
};

class EngineClient;

// How others reach the client; null once it is gone. Looked at on the io thread only.
struct EngineClientLink {
  std::atomic<bool> delivery_posted{false};
  EngineClient* client = nullptr;
};

// A submitted request. Destroying it ends the request in the engine if it has not finished; no event arrives afterwards.
// May outlive the EngineClient.
class Generation {
 public:
  Generation() = default;
  Generation(std::shared_ptr<EngineClientLink> link, RequestId id)
      : link_(std::move(link)), id_(id) {}
  Generation(Generation&&) noexcept = default;
  Generation& operator=(Generation&& other) noexcept;
  ~Generation() { stop(); }

  // Enough: a stop string was found. Not counted as cancelled.
  void stop();
  // The client left, or may not wait longer: counted and logged as cancelled.
  void abandon(const char* reason);

 private:
  EngineClient* detach();

  std::shared_ptr<EngineClientLink> link_;
  RequestId id_ = 0;
};

// Lives on the io thread; only the engine's notification comes from another one.
class EngineClient {
 public:
  // All three must outlive this; `engine` has not been used yet.
  EngineClient(Engine& engine, Metrics& metrics, PostToIo post);
  ~EngineClient();

  const ModelInfo& info() const { return engine_.info(); }

  // All of them or none, with Engine::submit's errors. Ids are chosen here. sinks[i] receives the events of requests[i] and must
  // stay until the Generation returned for it is gone. `arrived`: when the client's request was complete, for the time to first
  // token.
  Result<std::vector<Generation>> submit(std::vector<Request> requests,
                                         std::span<EventSink* const> sinks,
                                         Clock::time_point arrived);

  // Requests that have neither finished nor been cancelled.
  std::size_t active() const { return active_.size(); }

  // For Generation.
  void stop(RequestId id);
  void abandon(RequestId id, const char* reason);

 private:
  struct Active {
    EventSink* sink = nullptr;
    Clock::time_point arrived;
    Clock::time_point last_token;
    std::uint64_t tokens = 0;
  };

  void deliver();
  void observe(Active& active, std::size_t tokens);

  Engine& engine_;
  Metrics& metrics_;
  std::shared_ptr<EngineClientLink> link_;
  RequestId next_id_ = 1;
  std::unordered_map<RequestId, Active> active_;
};

}  // namespace nibble::api
