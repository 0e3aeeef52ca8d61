#include "sched/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <iterator>
#include <numeric>
#include <utility>

#include "base/log.h"

namespace nibble {

std::unique_ptr<Engine> Engine::load(const EngineOptions& options,
                                     const std::function<void(double)>& progress) {
  return std::make_unique<sched::Scheduler>(
      engine::ModelRunner::load(options, options.max_num_seqs, progress), options);
}

namespace sched {
namespace {

Status invalid(std::string message, std::string param) {
  return {StatusCode::kInvalidArgument, std::move(message), std::move(param)};
}

Event finished(const Request& request, FinishReason reason) {
  Event event;
  event.request = request.id;
  event.usage.prompt_tokens = static_cast<int>(request.prompt.size());
  event.finished = reason;
  return event;
}

}  // namespace

Scheduler::Scheduler(std::unique_ptr<engine::ModelRunner> runner, const EngineOptions& options)
    : runner_(std::move(runner)),
      options_(options),
      stepper_(*runner_, options.prefill_chunk),
      free_slots_(static_cast<std::size_t>(stepper_.slots())),
      thread_([this](const std::stop_token& stop) { run(stop); }) {}

Scheduler::~Scheduler() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  thread_.request_stop();
  wake_.notify_all();
}

EngineStats Scheduler::stats() const {
  const std::lock_guard lock(mutex_);
  EngineStats stats = stats_;
  stats.waiting = static_cast<int>(waiting_.size());
  return stats;
}

Result<std::monostate> Scheduler::submit(Request request) {
  const ModelInfo& model = info();
  if (request.prompt.empty()) return invalid("the prompt is empty", "prompt");
  for (std::size_t i = 0; i < request.prompt.size(); ++i)
    if (request.prompt[i] < 0 || request.prompt[i] >= model.vocab_size)
      return invalid(fmt::format("token {} of the prompt is {}; the vocabulary has {} tokens", i,
                                 request.prompt[i], model.vocab_size),
                     "prompt");
  const std::int64_t prompt_len = static_cast<std::int64_t>(request.prompt.size());
  if (prompt_len + std::max(request.sampling.max_tokens, 0) > model.max_model_len)
    return invalid(fmt::format("this model's context is {} tokens; the request asks for {} ({} in "
                               "the prompt, {} for the answer)",
                               model.max_model_len, prompt_len + request.sampling.max_tokens,
                               prompt_len, request.sampling.max_tokens),
                   prompt_len > model.max_model_len ? "prompt" : "max_tokens");
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return Status{StatusCode::kUnavailable, "the server is stopping", ""};
    if (static_cast<int>(waiting_.size()) >= options_.max_waiting)
      return Status{StatusCode::kResourceExhausted,
                    fmt::format("{} requests are waiting already", waiting_.size()), ""};
    waiting_.push_back(std::move(request));
  }
  wake_.notify_one();
  return std::monostate{};
}

void Scheduler::cancel(RequestId id) {
  Event event;
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(waiting_.begin(), waiting_.end(),
                                    [&](const Request& request) { return request.id == id; });
    if (found == waiting_.end()) {
      if (running_ids_.contains(id)) cancelled_.insert(id);
      return;
    }
    event = finished(*found, FinishReason::kCancelled);
    waiting_.erase(found);
  }
  emit(std::move(event));
}

void Scheduler::on_events(std::function<void()> notify) {
  const std::lock_guard lock(mutex_);
  notify_ = std::move(notify);
}

std::vector<Event> Scheduler::take_events() {
  const std::lock_guard lock(mutex_);
  return std::exchange(events_, {});
}

void Scheduler::emit(Event event) {
  {
    const std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
  }
  notify();
}

void Scheduler::notify() {
  std::function<void()> call;
  {
    const std::lock_guard lock(mutex_);
    if (!events_.empty()) call = notify_;
  }
  if (call) call();
}

bool Scheduler::admit(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  if (running_.empty()) wake_.wait(lock, stop, [&] { return !waiting_.empty(); });
  if (stop.stop_requested()) return false;
  while (!waiting_.empty() && !free_slots_.empty()) {
    auto sequence = std::make_unique<Sequence>(std::move(waiting_.front()));
    waiting_.pop_front();
    sequence->slot = free_slots_.back();
    free_slots_.pop_back();
    running_ids_.insert(sequence->request.id);
    running_.push_back(std::move(sequence));
  }
  stats_.running = static_cast<int>(running_.size());
  return true;
}

void Scheduler::remove(std::size_t i) {
  const Sequence& s = *running_[i];
  free_slots_.push_back(s.slot);
  running_ids_.erase(s.request.id);
  cancelled_.erase(s.request.id);
  running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
  stats_.running = static_cast<int>(running_.size());
  stats_.kv_usage = kv_usage();
}

double Scheduler::kv_usage() const {
  double tokens = 0.0;
  for (const auto& sequence : running_) tokens += sequence->device_len;
  return tokens / (static_cast<double>(info().max_num_seqs) * info().max_model_len);
}

void Scheduler::drop_cancelled() {
  std::vector<Event> events;
  {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = running_.size(); i-- > 0 && !cancelled_.empty();) {
      if (!cancelled_.contains(running_[i]->request.id)) continue;
      events.push_back(finished(running_[i]->request, FinishReason::kCancelled));
      events.back().usage = running_[i]->usage;
      remove(i);
    }
  }
  for (Event& event : events) emit(std::move(event));
}

void Scheduler::run(const std::stop_token& stop) {
  std::iota(free_slots_.rbegin(), free_slots_.rend(), 0);
  while (admit(stop)) {
    drop_cancelled();
    if (!running_.empty()) step();
  }
  // Whoever still runs or waits is told so.
  std::vector<Event> events;
  {
    const std::lock_guard lock(mutex_);
    while (!running_.empty()) {
      events.push_back(finished(running_[0]->request, FinishReason::kCancelled));
      events.back().usage = running_[0]->usage;
      remove(0);
    }
    for (const Request& request : waiting_)
      events.push_back(finished(request, FinishReason::kCancelled));
    waiting_.clear();
  }
  for (Event& event : events) emit(std::move(event));
}

void Scheduler::step() {
  std::vector<Sequence*> sequences;
  std::vector<Usage> before;
  std::vector<int> cached;
  for (const auto& sequence : running_) {
    sequences.push_back(sequence.get());
    before.push_back(sequence->usage);
    cached.push_back(sequence->device_len);
  }
  std::vector<StepResult> results;
  // A step that fails fails whoever is in it; the next ones start from empty slots.
  try {
    results = stepper_.advance(sequences);
  } catch (const std::exception& error) {
    spdlog::error("a step of {} requests failed: {}", sequences.size(), error.what());
    results.assign(sequences.size(), {});
    for (StepResult& result : results) {
      result.finished = FinishReason::kError;
      result.error = {StatusCode::kInternal, error.what(), ""};
    }
  }
  std::vector<Event> events;
  {
    const std::lock_guard lock(mutex_);
    ++stats_.steps;
    for (std::size_t i = sequences.size(); i-- > 0;) {
      const Sequence& s = *sequences[i];
      StepResult& result = results[i];
      stats_.prompt_tokens += static_cast<std::uint64_t>(
          std::max(0, std::min(s.device_len, s.prompt_len()) - cached[i]));
      stats_.generated_tokens +=
          static_cast<std::uint64_t>(s.usage.completion_tokens - before[i].completion_tokens);
      stats_.drafted_tokens +=
          static_cast<std::uint64_t>(s.usage.drafted_tokens - before[i].drafted_tokens);
      stats_.accepted_tokens +=
          static_cast<std::uint64_t>(s.usage.accepted_tokens - before[i].accepted_tokens);
      if (result.finished || !result.tokens.empty() || !result.prompt.empty()) {
        Event event;
        event.request = s.request.id;
        event.tokens = std::move(result.tokens);
        event.prompt = std::move(result.prompt);
        event.finished = result.finished;
        event.error = std::move(result.error);
        event.usage = s.usage;
        events.push_back(std::move(event));
      }
      if (result.finished) remove(i);
    }
    stats_.kv_usage = kv_usage();
    // In the order of arrival, and at once: one delivery for a step.
    std::move(events.rbegin(), events.rend(), std::back_inserter(events_));
  }
  notify();
}

}  // namespace sched
}  // namespace nibble
