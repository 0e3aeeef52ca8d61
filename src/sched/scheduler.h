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

// Requests wait in one queue and start in the order of their arrival; up to max_num_seqs run together,
// a step of all of them at a time. A cancelled one leaves within a step, waiting or running.
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
  // Starts who waits while there is a slot. Blocks while nothing runs and nothing waits; false when
  // stopping.
  bool admit(const std::stop_token& stop);
  // Ends the running ones that were cancelled since the last step.
  void drop_cancelled();
  void step();
  // Takes running_[i] out, under the mutex; its slot is free again.
  void remove(std::size_t i);
  double kv_usage() const;
  void emit(Event event);
  void notify();  // that events wait

  std::unique_ptr<engine::ModelRunner> runner_;
  EngineOptions options_;
  Stepper stepper_;
  // The scheduler thread's own: in the order of arrival, and slots that nobody has.
  std::vector<std::unique_ptr<Sequence>> running_;
  std::vector<int> free_slots_;

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable_any wake_;
  std::deque<Request> waiting_;
  std::unordered_set<RequestId> running_ids_, cancelled_;  // cancelled_: of the running ones
  std::vector<Event> events_;
  std::function<void()> notify_;
  EngineStats stats_;
  bool stopping_ = false;

  std::jthread thread_;  // last: starts when everything above exists
};

}  // namespace nibble::sched
