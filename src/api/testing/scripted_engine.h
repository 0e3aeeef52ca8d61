// An engine without a model, for tests: emits the ids a script gives, on a scheduler thread of its own.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "nibble/engine.h"

namespace nibble::api::testing {

// The ids generated for a request; an id equal to ModelInfo::eos_token ends it as the real engine would.
using Script = std::function<std::vector<TokenId>(const Request&)>;

struct ScriptedOptions {
  ModelInfo info;
  Script script;
  int tokens_per_step = 1;
  int max_waiting = 256;
  int max_running = 16;
  std::chrono::microseconds step_time{0};
};

// Log-probabilities are made up from the ids: token t has -t/1000, its alternatives follow at t+1, t+2, ...
class ScriptedEngine final : public Engine {
 public:
  explicit ScriptedEngine(ScriptedOptions options);
  ~ScriptedEngine() override;

  const ModelInfo& info() const override { return options_.info; }
  EngineStats stats() const override;
  Result<std::monostate> submit(std::vector<Request> requests) override;
  void cancel(RequestId id) override;
  void reset_prefix_cache() override;
  void on_events(std::function<void()> notify) override;
  std::string failure() const override;
  std::vector<Event> take_events() override;

  // --- for tests, from any thread ---
  void pause();  // no step begins until resume()
  void resume();
  void allow_steps(int count);   // while paused: lets so many steps through
  void fail_next(Status error);  // the next request that starts ends with kError
  void lose_device(
      const std::string& why);            // every request ends with kError, none is taken any more
  std::vector<Request> requests() const;  // all accepted so far
  int cancelled() const;
  int cache_resets() const;

  static float logprob_of(TokenId id) { return static_cast<float>(id) / -1000.0f; }

 private:
  struct Sequence {
    Request request;
    std::vector<TokenId> tokens;
    std::size_t position = 0;
    Usage usage;
    bool prompt_sent = false;
    bool cancel = false;
  };

  void run(std::stop_token stop);
  bool step_sequence(Sequence& sequence, Event& event);
  GeneratedToken token(const Request& request, TokenId id) const;

  const ScriptedOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::vector<Sequence> running_;
  std::vector<Sequence> waiting_;
  std::vector<Event> events_;
  std::vector<Request> seen_;
  std::function<void()> notify_;
  std::optional<Status> failure_;
  std::string lost_;
  EngineStats stats_;
  int cancelled_ = 0;
  int cache_resets_ = 0;
  bool paused_ = false;
  int allowed_steps_ = 0;
  std::jthread thread_;  // last
};

}  // namespace nibble::api::testing
