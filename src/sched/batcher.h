// Who runs, and what each step is made of. No threads, no clock of its own: the same calls give the same steps.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/step_model.h"
#include "nibble/engine.h"
#include "sched/sequence_cache.h"
#include "sched/step.h"
#include "sched/step_cost.h"
#include "sched/timed_model.h"

namespace nibble::sched {

// Requests start in the order of their arrival, when a slot and pages for the whole prompt are there; one whose prompt is just being
// computed for another waits for that. A step is every decoding
// sequence with its drafts, and chunks of prompts as far as the budget goes. When pages run out, prefixes that nobody uses go
// first; then the sequence that came last goes back to the queue and later recomputes its tokens, which gives the same ones. The
// third time a sequence starts it gets all pages it can ever need and stays.
//
// Thread: one. What the model throws in a step ends the requests of that step with kError; the others go on. DeviceLost alone
// passes through, from every call that may use the model; then only fail_all() is left to call.
class Batcher {
 public:
  using Clock = std::function<std::int64_t()>;  // nanoseconds

  // Borrows the model.
  Batcher(engine::StepModel& model, const EngineOptions& options, Clock clock);

  // A request that Scheduler::submit would accept.
  void add(Request request);
  // Unknown ids are ignored. The last event of a known one goes to `events`.
  void cancel(RequestId id, std::vector<Event>& events);
  void cancel_all(std::vector<Event>& events);
  // Ends whatever runs or waits with kError, without touching the model.
  void fail_all(const Status& error, std::vector<Event>& events);
  void reset_prefix_cache() { cache_.reset(); }

  bool idle() const { return waiting_.empty() && running_.empty(); }
  int waiting() const { return static_cast<int>(waiting_.size()); }
  // One step; appends what became of it.
  void step(std::vector<Event>& events);

  EngineStats stats() const;

 private:
  using SequencePtr = std::unique_ptr<Sequence>;

  void admit(std::vector<Event>& events);
  bool waits_for_twin(const Sequence& s) const;
  bool start(Sequence& s);
  std::size_t index_of(const Sequence& s) const;  // in running_
  // Takes a running sequence off the model; the caller moves it on.
  SequencePtr stop(std::size_t i);
  void preempt(std::size_t i);
  // Pages for `tokens` tokens of s, whoever must give way; false: s itself had to.
  bool make_room(Sequence& s, int tokens);
  std::vector<Part> decodes();
  void add_prefill(std::vector<Part>& parts, int tokens);
  int chunk_limit(const Sequence& s) const;
  int drafts_for(std::span<const Part> parts);
  std::vector<PartResult> run(std::span<const Part> parts, int drafts);
  void keep_snapshots(Sequence& s, int before, const PartResult& result);
  void account(const Part& part, const PartResult& result, int before, int proposed);

  TimedModel model_;
  EngineOptions options_;
  Clock clock_;
  SequenceCache cache_;
  Stepper stepper_;
  StepCost cost_;
  std::deque<SequencePtr> waiting_;
  std::vector<SequencePtr> running_;  // in the order of arrival
  std::vector<int> free_slots_;
  std::uint64_t arrivals_ = 0;
  std::string
      lost_;  // why the device was, in a call whose failure nobody needed to hear of at once
  EngineStats stats_;
};

}  // namespace nibble::sched
