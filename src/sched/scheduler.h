// The scheduler: one thread that owns sequences, caches and the batch; everybody else sends it
// values.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/step_model.h"
#include "nibble/engine.h"
#include "sched/batcher.h"

namespace nibble::sched {

// The thread around a Batcher, and the two queues: requests and cancellations in, events out. A cancelled request leaves within
// a step, waiting or running.
class Scheduler : public Engine {
 public:
  Scheduler(std::unique_ptr<engine::StepModel> model, const EngineOptions& options);
  ~Scheduler() override;

  const ModelInfo& info() const override { return model_->info(); }
  EngineStats stats() const override;
  using Engine::submit;
  Result<std::monostate> submit(std::vector<Request> requests) override;
  void cancel(RequestId id) override;
  void reset_prefix_cache() override;
  void on_events(std::function<void()> notify) override;
  std::string failure() const override;
  std::vector<Event> take_events() override;

 private:
  // What other threads asked for since the last step.
  struct Inbox {
    std::vector<Request> requests;
    std::vector<RequestId> cancelled;
    bool reset = false;

    bool empty() const { return requests.empty() && cancelled.empty() && !reset; }
  };

  Status check(const Request& request) const;
  void run(const std::stop_token& stop);
  // Steps until it is asked to stop. Throws DeviceLost; `events` then holds what is not published yet.
  void steps(const std::stop_token& stop, std::vector<Event>& events);
  // Blocks while there is nothing to do.
  Inbox take_inbox(const std::stop_token& stop);
  // Hands events over, with them why they are the last ones ("": they are not), and says so.
  void publish(std::vector<Event> events, const std::string& failure = "");

  std::unique_ptr<engine::StepModel> model_;
  EngineOptions options_;
  Batcher batcher_;  // the scheduler thread's own

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable_any wake_;
  Inbox inbox_;
  std::vector<Event> events_;
  std::function<void()> notify_;
  EngineStats stats_;  // as of the last step
  bool stopping_ = false;
  std::string failure_;

  std::jthread thread_;  // last: starts when everything above exists
};

}  // namespace nibble::sched
