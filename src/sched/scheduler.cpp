#include "sched/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "base/log.h"

namespace nibble {

std::unique_ptr<Engine> Engine::load(const EngineOptions& options,
                                     const std::function<void(double)>& progress) {
  constexpr int kSlots = 1;
  return std::make_unique<sched::Scheduler>(engine::ModelRunner::load(options, kSlots, progress),
                                            options);
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
      if (stats_.running > 0 && running_id_ == id) cancelled_.insert(id);
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
  std::function<void()> notify;
  {
    const std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
    notify = notify_;
  }
  if (notify) notify();
}

bool Scheduler::take_cancelled(RequestId id) {
  const std::lock_guard lock(mutex_);
  return cancelled_.erase(id) > 0;
}

std::unique_ptr<Sequence> Scheduler::next(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  wake_.wait(lock, stop, [&] { return !waiting_.empty(); });
  if (stop.stop_requested() || waiting_.empty()) return nullptr;
  auto sequence = std::make_unique<Sequence>(std::move(waiting_.front()));
  waiting_.pop_front();
  running_id_ = sequence->request.id;
  stats_.running = 1;
  return sequence;
}

void Scheduler::run(const std::stop_token& stop) {
  while (std::unique_ptr<Sequence> sequence = next(stop)) {
    run_sequence(*sequence, stop);
    const std::lock_guard lock(mutex_);
    cancelled_.erase(sequence->request.id);
    stats_.running = 0;
    stats_.kv_usage = 0.0;
  }
  // Whoever still waits is told so.
  std::deque<Request> left;
  {
    const std::lock_guard lock(mutex_);
    left.swap(waiting_);
  }
  for (const Request& request : left) emit(finished(request, FinishReason::kCancelled));
}

void Scheduler::run_sequence(Sequence& s, const std::stop_token& stop) {
  for (bool going = true; going;) {
    Event event;
    event.request = s.request.id;
    if (stop.stop_requested() || take_cancelled(s.request.id)) {
      event.finished = FinishReason::kCancelled;
    } else {
      const int cached = s.device_len;
      const Usage before = s.usage;
      // One request's failure is its own: the next one starts from an empty slot.
      try {
        StepResult result = stepper_.advance(s);
        event.tokens = std::move(result.tokens);
        event.prompt = std::move(result.prompt);
        event.finished = result.finished;
        event.error = std::move(result.error);
      } catch (const std::exception& error) {
        spdlog::error("request {}: step failed: {}", s.request.id, error.what());
        event.finished = FinishReason::kError;
        event.error = {StatusCode::kInternal, error.what(), ""};
      }
      const std::lock_guard lock(mutex_);
      ++stats_.steps;
      stats_.kv_usage = static_cast<double>(s.device_len) / info().max_model_len;
      stats_.prompt_tokens +=
          static_cast<std::uint64_t>(std::max(0, std::min(s.device_len, s.prompt_len()) - cached));
      stats_.generated_tokens +=
          static_cast<std::uint64_t>(s.usage.completion_tokens - before.completion_tokens);
      stats_.drafted_tokens +=
          static_cast<std::uint64_t>(s.usage.drafted_tokens - before.drafted_tokens);
      stats_.accepted_tokens +=
          static_cast<std::uint64_t>(s.usage.accepted_tokens - before.accepted_tokens);
    }
    event.usage = s.usage;
    going = !event.finished;
    if (!going || !event.tokens.empty() || !event.prompt.empty()) emit(std::move(event));
  }
}

}  // namespace sched
}  // namespace nibble
