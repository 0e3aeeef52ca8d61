// The scheduler: one thread that owns sequences, caches and the batch; everybody else sends it
// values.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_set>
#include <vector>

#include "nibble/engine.h"
#include "sched/step.h"

namespace nibble::sched {

// Requests wait in one queue and run in the order of their arrival, one after another. A cancelled
// one leaves within a step, waiting or running.
class Scheduler : public Engine {
 public:
  Scheduler(std::unique_ptr<engine::ModelRunner> runner, const EngineOptions& options);
  ~Scheduler() override;

  const ModelInfo& info() const override { return runner_->info(); }
  EngineStats stats() const override;
  Result<std::monostate> submit(Request request) override;
  void cancel(RequestId id) override;
  void on_events(std::function<void()> notify) override;
  std::vector<Event> take_events() override;

 private:
  void run(const std::stop_token& stop);
  // The next sequence to run; null when stopping. Blocks while nothing waits.
  std::unique_ptr<Sequence> next(const std::stop_token& stop);
  void run_sequence(Sequence& sequence, const std::stop_token& stop);
  bool take_cancelled(RequestId id);
  void emit(Event event);

  std::unique_ptr<engine::ModelRunner> runner_;
  EngineOptions options_;
  Stepper stepper_;

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable_any wake_;
  std::deque<Request> waiting_;
  std::unordered_set<RequestId> cancelled_;  // of the running sequence
  std::vector<Event> events_;
  std::function<void()> notify_;
  EngineStats stats_;
  RequestId running_id_ = 0;
  bool stopping_ = false;

  std::jthread thread_;  // last: starts when everything above exists
};

}  // namespace nibble::sched
