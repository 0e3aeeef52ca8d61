#include "api/engine_client.h"

#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace nibble::api {

Generation& Generation::operator=(Generation&& other) noexcept {
  if (this != &other) {
    stop();
    link_ = std::move(other.link_);
    id_ = other.id_;
  }
  return *this;
}

EngineClient* Generation::detach() {
  const auto link = std::exchange(link_, nullptr);
  return link ? link->client : nullptr;
}

void Generation::stop() {
  if (EngineClient* client = detach()) client->stop(id_);
}

void Generation::abandon(const char* reason) {
  if (EngineClient* client = detach()) client->abandon(id_, reason);
}

EngineClient::EngineClient(Engine& engine, Metrics& metrics, PostToIo post)
    : engine_(engine), metrics_(metrics), link_(std::make_shared<EngineClientLink>()) {
  link_->client = this;
  engine_.on_events([link = link_, post = std::move(post)] {
    // One delivery takes all events there are, so one in the io thread's queue is enough.
    if (link->delivery_posted.exchange(true)) return;
    post([link] {
      link->delivery_posted = false;
      if (link->client) link->client->deliver();
    });
  });
}

EngineClient::~EngineClient() {
  link_->client = nullptr;
}

Result<std::vector<Generation>> EngineClient::submit(std::vector<Request> requests,
                                                     std::span<EventSink* const> sinks,
                                                     Clock::time_point arrived) {
  NIBBLE_CHECK(requests.size() == sinks.size(), "{} requests, {} sinks", requests.size(),
               sinks.size());
  const RequestId first = next_id_;
  // Registered before: the first event may be under way when submit() returns.
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i].id = next_id_++;
    active_[requests[i].id] = {sinks[i], arrived, arrived, 0};
  }
  Result<std::monostate> accepted = engine_.submit(std::move(requests));
  if (!accepted) {
    for (RequestId id = first; id < next_id_; ++id) active_.erase(id);
    return accepted.status();
  }
  std::vector<Generation> generations;
  for (RequestId id = first; id < next_id_; ++id) generations.emplace_back(link_, id);
  return generations;
}

void EngineClient::stop(RequestId id) {
  if (active_.erase(id) > 0) engine_.cancel(id);
}

void EngineClient::abandon(RequestId id, const char* reason) {
  const auto found = active_.find(id);
  if (found == active_.end()) return;
  spdlog::info("request {} cancelled after {} tokens: {}", id, found->second.tokens, reason);
  metrics_.count_cancelled();
  active_.erase(found);
  engine_.cancel(id);
}

void EngineClient::deliver() {
  for (Event& event : engine_.take_events()) {
    const auto found = active_.find(event.request);
    if (found == active_.end()) continue;  // ended by us; the rest is of no interest
    EventSink* const sink = found->second.sink;
    observe(found->second, event.tokens.size());
    if (event.finished) active_.erase(found);
    sink->on_event(std::move(event));
  }
}

void EngineClient::observe(Active& active, std::size_t tokens) {
  if (tokens == 0) return;
  const Clock::time_point now = Clock::now();
  if (active.tokens == 0) {
    metrics_.observe_first_token(std::chrono::duration<double>(now - active.arrived).count());
    // The others of this event came in the same step.
    metrics_.observe_tokens(0.0, tokens - 1);
  } else {
    const double gap_s = std::chrono::duration<double>(now - active.last_token).count();
    metrics_.observe_tokens(gap_s / static_cast<double>(tokens), tokens);
  }
  active.last_token = now;
  active.tokens += tokens;
}

}  // namespace nibble::api
