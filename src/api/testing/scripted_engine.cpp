#include "api/testing/scripted_engine.h"

#include <algorithm>
#include <utility>

namespace nibble::api::testing {

ScriptedEngine::ScriptedEngine(ScriptedOptions options)
    : options_(std::move(options)), thread_([this](std::stop_token stop) { run(stop); }) {}

ScriptedEngine::~ScriptedEngine() {
  thread_.request_stop();
  thread_.join();
}

EngineStats ScriptedEngine::stats() const {
  const std::lock_guard lock(mutex_);
  EngineStats stats = stats_;
  stats.running = static_cast<int>(running_.size());
  stats.waiting = static_cast<int>(waiting_.size());
  return stats;
}

Result<std::monostate> ScriptedEngine::submit(std::vector<Request> requests) {
  const std::lock_guard lock(mutex_);
  if (!lost_.empty()) return Status{StatusCode::kUnavailable, "the device is lost", ""};
  if (static_cast<int>(waiting_.size() + requests.size()) > options_.max_waiting)
    return Status{StatusCode::kResourceExhausted, "too many requests are waiting", ""};
  for (Request& request : requests) {
    seen_.push_back(request);
    Sequence sequence;
    sequence.tokens = options_.script(request);
    sequence.usage.prompt_tokens = static_cast<int>(request.prompt.size());
    sequence.request = std::move(request);
    waiting_.push_back(std::move(sequence));
  }
  changed_.notify_all();
  return std::monostate{};
}

void ScriptedEngine::cancel(RequestId id) {
  const std::lock_guard lock(mutex_);
  for (auto* list : {&running_, &waiting_})
    for (Sequence& sequence : *list)
      if (sequence.request.id == id) sequence.cancel = true;
  changed_.notify_all();
}

void ScriptedEngine::on_events(std::function<void()> notify) {
  const std::lock_guard lock(mutex_);
  notify_ = std::move(notify);
}

std::vector<Event> ScriptedEngine::take_events() {
  const std::lock_guard lock(mutex_);
  return std::exchange(events_, {});
}

void ScriptedEngine::pause() {
  const std::lock_guard lock(mutex_);
  paused_ = true;
}

void ScriptedEngine::resume() {
  const std::lock_guard lock(mutex_);
  paused_ = false;
  changed_.notify_all();
}

void ScriptedEngine::allow_steps(int count) {
  const std::lock_guard lock(mutex_);
  allowed_steps_ += count;
  changed_.notify_all();
}

void ScriptedEngine::fail_next(Status error) {
  const std::lock_guard lock(mutex_);
  failure_ = std::move(error);
}

void ScriptedEngine::lose_device(const std::string& why) {
  std::function<void()> notify;
  {
    const std::lock_guard lock(mutex_);
    lost_ = why;
    for (auto* list : {&running_, &waiting_})
      for (const Sequence& sequence : std::exchange(*list, {})) {
        Event event;
        event.request = sequence.request.id;
        event.finished = FinishReason::kError;
        event.error = {StatusCode::kInternal, why, ""};
        events_.push_back(std::move(event));
      }
    notify = notify_;
  }
  if (notify) notify();
}

std::string ScriptedEngine::failure() const {
  const std::lock_guard lock(mutex_);
  return lost_;
}

std::vector<Request> ScriptedEngine::requests() const {
  const std::lock_guard lock(mutex_);
  return seen_;
}

void ScriptedEngine::reset_prefix_cache() {
  const std::lock_guard lock(mutex_);
  ++cache_resets_;
}

int ScriptedEngine::cache_resets() const {
  const std::lock_guard lock(mutex_);
  return cache_resets_;
}

int ScriptedEngine::cancelled() const {
  const std::lock_guard lock(mutex_);
  return cancelled_;
}

GeneratedToken ScriptedEngine::token(const Request& request, TokenId id) const {
  GeneratedToken out;
  out.token = id;
  if (request.sampling.logprobs < 0) return out;
  out.logprob = logprob_of(id);
  for (TokenId other = id; other < id + request.sampling.logprobs; ++other) {
    const TokenId wrapped = other % options_.info.vocab_size;
    out.top.push_back({wrapped, logprob_of(id) - static_cast<float>(other - id)});
  }
  return out;
}

// True: this was the request's last event.
bool ScriptedEngine::step_sequence(Sequence& sequence, Event& event) {
  const Request& request = sequence.request;
  event.request = request.id;
  if (sequence.cancel) {
    ++cancelled_;
    event.finished = FinishReason::kCancelled;
  } else if (failure_) {
    event.error = *std::exchange(failure_, std::nullopt);
    event.finished = FinishReason::kError;
  } else {
    if (!std::exchange(sequence.prompt_sent, true)) {
      stats_.prompt_tokens += request.prompt.size();
      if (request.prompt_logprobs)
        for (const TokenId id : request.prompt) {
          event.prompt.push_back(token(request, id));
          if (event.prompt.size() == 1) event.prompt.back() = {id, std::nullopt, {}};
        }
    }
    for (int i = 0; i < options_.tokens_per_step && !event.finished; ++i) {
      const bool spent = sequence.usage.completion_tokens >= request.sampling.max_tokens;
      if (spent || sequence.position >= sequence.tokens.size()) {
        event.finished = FinishReason::kLength;
        break;
      }
      const TokenId id = sequence.tokens[sequence.position++];
      if (id == options_.info.eos_token && !request.sampling.ignore_eos) {
        event.finished = FinishReason::kStop;
        break;
      }
      event.tokens.push_back(token(request, id));
      ++sequence.usage.completion_tokens;
      ++stats_.generated_tokens;
      if (sequence.usage.completion_tokens >= request.sampling.max_tokens)
        event.finished = FinishReason::kLength;
    }
  }
  event.usage = sequence.usage;
  return event.finished.has_value();
}

void ScriptedEngine::run(std::stop_token stop) {
  while (!stop.stop_requested()) {
    std::function<void()> notify;
    {
      std::unique_lock lock(mutex_);
      const auto any_cancelled = [this] {
        const auto cancelled = [](const Sequence& sequence) { return sequence.cancel; };
        return std::any_of(running_.begin(), running_.end(), cancelled) ||
               std::any_of(waiting_.begin(), waiting_.end(), cancelled);
      };
      const auto work = [&] {
        const bool free = !paused_ || allowed_steps_ > 0;
        return any_cancelled() || (free && !(running_.empty() && waiting_.empty()));
      };
      if (!changed_.wait(lock, stop, work)) return;
      const bool only_cancel = paused_ && allowed_steps_ == 0;
      if (paused_ && !only_cancel) --allowed_steps_;
      while (!only_cancel && !waiting_.empty() &&
             static_cast<int>(running_.size()) < options_.max_running) {
        running_.push_back(std::move(waiting_.front()));
        waiting_.erase(waiting_.begin());
      }
      if (!only_cancel) ++stats_.steps;
      for (auto* list : {&running_, &waiting_}) {
        std::vector<Sequence> left;
        for (Sequence& sequence : *list) {
          const bool runs = list == &running_ && !only_cancel;
          bool last = false;
          if (runs || sequence.cancel) {
            Event event;
            last = step_sequence(sequence, event);
            events_.push_back(std::move(event));
          }
          if (!last) left.push_back(std::move(sequence));
        }
        *list = std::move(left);
      }
      notify = notify_;
    }
    if (notify) notify();
    if (options_.step_time.count() > 0) std::this_thread::sleep_for(options_.step_time);
  }
}

}  // namespace nibble::api::testing
