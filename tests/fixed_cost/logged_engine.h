// An engine that writes down when each token left it, around the real one.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "nibble/engine.h"

namespace nibble::fixed_cost {

// Requests are told apart by their seed: the one thing a client chooses that reaches the engine.
class LoggedEngine final : public Engine {
 public:
  explicit LoggedEngine(std::unique_ptr<Engine> engine) : engine_(std::move(engine)) {}

  const ModelInfo& info() const override { return engine_->info(); }
  EngineStats stats() const override { return engine_->stats(); }
  Result<std::monostate> submit(std::vector<Request> requests) override;
  void cancel(RequestId id) override { engine_->cancel(id); }
  void reset_prefix_cache() override { engine_->reset_prefix_cache(); }
  // Takes the events out on the scheduler's thread, to know the moment, and keeps them for take_events().
  void on_events(std::function<void()> notify) override;
  std::string failure() const override { return engine_->failure(); }
  std::vector<Event> take_events() override;

  // A line an event with tokens: seed, tokens so far, nanoseconds of CLOCK_MONOTONIC.
  void write(const std::string& path) const;

 private:
  struct Entry {
    std::uint64_t seed = 0;
    int tokens = 0;
    std::int64_t time_ns = 0;
  };

  void collect();

  mutable std::mutex mutex_;  // guards what follows
  std::vector<Event> events_;
  std::unordered_map<RequestId, std::uint64_t> seeds_;
  std::vector<Entry> log_;
  std::unique_ptr<Engine> engine_;  // last: its thread ends before the rest goes
};

}  // namespace nibble::fixed_cost
