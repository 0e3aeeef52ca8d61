#include "logged_engine.h"

#include <fmt/os.h>

#include <chrono>
#include <iterator>
#include <utility>

namespace nibble::fixed_cost {

Result<std::monostate> LoggedEngine::submit(std::vector<Request> requests) {
  {
    const std::lock_guard lock(mutex_);
    for (const Request& request : requests) seeds_[request.id] = request.sampling.seed;
  }
  return engine_->submit(std::move(requests));
}

void LoggedEngine::on_events(std::function<void()> notify) {
  engine_->on_events([this, notify = std::move(notify)] {
    collect();
    notify();
  });
}

void LoggedEngine::collect() {
  std::vector<Event> events = engine_->take_events();
  const std::int64_t now_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(
                                  std::chrono::steady_clock::now().time_since_epoch())
                                  .count();
  const std::lock_guard lock(mutex_);
  for (const Event& event : events) {
    if (!event.tokens.empty())
      log_.push_back({seeds_[event.request], event.usage.completion_tokens, now_ns});
    if (event.finished) seeds_.erase(event.request);
  }
  std::move(events.begin(), events.end(), std::back_inserter(events_));
}

std::vector<Event> LoggedEngine::take_events() {
  const std::lock_guard lock(mutex_);
  return std::exchange(events_, {});
}

void LoggedEngine::write(const std::string& path) const {
  const std::lock_guard lock(mutex_);
  auto out = fmt::output_file(path);
  for (const Entry& entry : log_) out.print("{} {} {}\n", entry.seed, entry.tokens, entry.time_ns);
}

}  // namespace nibble::fixed_cost
