#include "sched/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "ops/batch.h"

namespace nibble::sched {
namespace {

Status invalid(std::string message, std::string param) {
  return {StatusCode::kInvalidArgument, std::move(message), std::move(param)};
}

std::int64_t steady_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

Scheduler::Scheduler(std::unique_ptr<engine::StepModel> model, const EngineOptions& options)
    : model_(std::move(model)),
      options_(options),
      batcher_(*model_, options, steady_ns),
      stats_(batcher_.stats()),
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
  stats.waiting += static_cast<int>(inbox_.requests.size());
  return stats;
}

Result<std::monostate> Scheduler::submit(std::vector<Request> requests) {
  for (const Request& request : requests)
    if (const Status refused = check(request); !refused.message.empty()) return refused;
  const auto count = static_cast<int>(requests.size());
  // Trying again would not help.
  if (count > options_.max_waiting)
    return invalid(fmt::format("{} generations were asked for at once, and the queue holds {}",
                               count, options_.max_waiting),
                   "");
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return Status{StatusCode::kUnavailable, "the server is stopping", ""};
    const int waiting = stats_.waiting + static_cast<int>(inbox_.requests.size());
    if (waiting + count > options_.max_waiting)
      return Status{StatusCode::kResourceExhausted,
                    fmt::format("{} requests are waiting already", waiting), ""};
    std::move(requests.begin(), requests.end(), std::back_inserter(inbox_.requests));
  }
  wake_.notify_one();
  return std::monostate{};
}

// An empty message: nothing is wrong.
Status Scheduler::check(const Request& request) const {
  const ModelInfo& model = info();
  if (request.prompt.empty()) return invalid("the prompt is empty", "prompt");
  for (std::size_t i = 0; i < request.prompt.size(); ++i)
    if (request.prompt[i] < 0 || request.prompt[i] >= model.vocab_size)
      return invalid(fmt::format("token {} of the prompt is {}; the vocabulary has {} tokens", i,
                                 request.prompt[i], model.vocab_size),
                     "prompt");
  const auto prompt_len = static_cast<std::int64_t>(request.prompt.size());
  const std::int64_t tokens = prompt_len + std::max(request.sampling.max_tokens, 0);
  const auto too_long = [&](const char* what, std::int64_t most) {
    return invalid(
        fmt::format("{} {} tokens; the request asks for {} ({} in the prompt, {} for the "
                    "answer)",
                    what, most, tokens, prompt_len, request.sampling.max_tokens),
        prompt_len > most ? "prompt" : "max_tokens");
  };
  if (tokens > model.max_model_len) return too_long("this model's context is", model.max_model_len);
  const std::int64_t held = std::int64_t{model_->limits().pages} * ops::kPageTokens;
  if (tokens > held) return too_long("the cache holds", held);
  return {};
}

void Scheduler::cancel(RequestId id) {
  {
    const std::lock_guard lock(mutex_);
    inbox_.cancelled.push_back(id);
  }
  wake_.notify_one();
}

void Scheduler::reset_prefix_cache() {
  {
    const std::lock_guard lock(mutex_);
    inbox_.reset = true;
  }
  wake_.notify_one();
}

void Scheduler::on_events(std::function<void()> notify) {
  const std::lock_guard lock(mutex_);
  notify_ = std::move(notify);
}

std::vector<Event> Scheduler::take_events() {
  const std::lock_guard lock(mutex_);
  return std::exchange(events_, {});
}

std::string Scheduler::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void Scheduler::publish(std::vector<Event> events, const std::string& failure) {
  std::function<void()> call;
  {
    const std::lock_guard lock(mutex_);
    stats_ = batcher_.stats();
    failure_ = failure;
    if (events.empty() && failure.empty()) return;
    if (events_.empty())
      events_ = std::move(events);
    else
      std::move(events.begin(), events.end(), std::back_inserter(events_));
    call = notify_;
  }
  if (call) call();
}

Scheduler::Inbox Scheduler::take_inbox(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  if (batcher_.idle()) wake_.wait(lock, stop, [&] { return !inbox_.empty(); });
  // Counted as waiting until the batcher has them.
  stats_.waiting += static_cast<int>(inbox_.requests.size());
  return std::exchange(inbox_, {});
}

void Scheduler::steps(const std::stop_token& stop, std::vector<Event>& events) {
  while (!stop.stop_requested()) {
    Inbox inbox = take_inbox(stop);
    for (Request& request : inbox.requests) batcher_.add(std::move(request));
    for (const RequestId id : inbox.cancelled) batcher_.cancel(id, events);
    if (inbox.reset) batcher_.reset_prefix_cache();
    batcher_.step(events);
    publish(std::exchange(events, {}));
  }
}

// Whoever still runs or waits in the end is told so.
void Scheduler::run(const std::stop_token& stop) {
  std::vector<Event> events;
  std::string lost;
  try {
    steps(stop, events);
  } catch (const DeviceLost& error) {
    lost = error.what();
  }
  Inbox inbox;
  {
    const std::lock_guard lock(mutex_);
    inbox = std::exchange(inbox_, {});
    stopping_ = true;
  }
  for (Request& request : inbox.requests) batcher_.add(std::move(request));
  if (lost.empty())
    batcher_.cancel_all(events);
  else
    batcher_.fail_all({StatusCode::kInternal, lost, ""}, events);
  publish(std::move(events), lost);
}

}  // namespace nibble::sched
