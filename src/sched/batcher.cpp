#include "sched/batcher.h"

#include <algorithm>
#include <exception>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "ops/batch.h"

namespace nibble::sched {
namespace {

// A sequence that went back to the queue so often gets all its pages when it starts again.
constexpr int kMostPreemptions = 2;
// A shorter prompt is computed as fast as it is found.
constexpr int kLeastTwin = 32;
// Tokens that the drafter must have seen in a row for its proposals to count: its window.
constexpr int kDrafterContext = 128;

Event event_of(const Sequence& s) {
  Event event;
  event.request = s.request.id;
  event.usage = s.usage;
  return event;
}

Event last_event(const Sequence& s, FinishReason reason) {
  Event event = event_of(s);
  event.finished = reason;
  return event;
}

Event failed_event(const Sequence& s, Status error) {
  Event event = last_event(s, FinishReason::kError);
  event.error = std::move(error);
  return event;
}

}  // namespace

Batcher::Batcher(engine::StepModel& model, const EngineOptions& options, Clock clock)
    : model_(model, clock),
      options_(options),
      clock_(std::move(clock)),
      cache_(model_, options.snapshot_bytes, options.host_cache_bytes),
      stepper_(model_),
      free_slots_(static_cast<std::size_t>(model.limits().slots)) {
  std::iota(free_slots_.rbegin(), free_slots_.rend(), 0);
}

void Batcher::add(Request request) {
  waiting_.push_back(std::make_unique<Sequence>(std::move(request), arrivals_++));
}

void Batcher::cancel(RequestId id, std::vector<Event>& events) {
  const auto is = [&](const SequencePtr& s) { return s->request.id == id; };
  if (const auto at = std::find_if(waiting_.begin(), waiting_.end(), is); at != waiting_.end()) {
    events.push_back(last_event(**at, FinishReason::kCancelled));
    waiting_.erase(at);
  } else if (const auto run = std::find_if(running_.begin(), running_.end(), is);
             run != running_.end()) {
    events.push_back(last_event(**run, FinishReason::kCancelled));
    stop(static_cast<std::size_t>(run - running_.begin()));
  }
}

void Batcher::cancel_all(std::vector<Event>& events) {
  while (!running_.empty()) cancel(running_.front()->request.id, events);
  while (!waiting_.empty()) cancel(waiting_.front()->request.id, events);
}

void Batcher::fail_all(const Status& error, std::vector<Event>& events) {
  const auto fail = [&](const SequencePtr& s) { events.push_back(failed_event(*s, error)); };
  std::ranges::for_each(running_, fail);
  std::ranges::for_each(waiting_, fail);
  running_.clear();
  waiting_.clear();
}

std::size_t Batcher::index_of(const Sequence& s) const {
  const auto at = std::find_if(running_.begin(), running_.end(),
                               [&](const SequencePtr& other) { return other.get() == &s; });
  return static_cast<std::size_t>(at - running_.begin());
}

Batcher::SequencePtr Batcher::stop(std::size_t i) {
  SequencePtr s = std::move(running_[i]);
  running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
  free_slots_.push_back(s->slot);
  cache_.release(*s);
  return s;
}

void Batcher::preempt(std::size_t i) {
  SequencePtr s = stop(i);
  ++s->preemptions;
  ++stats_.preemptions;
  const auto before = [](const SequencePtr& a, const SequencePtr& b) {
    return a->arrival < b->arrival;
  };
  const auto at = std::upper_bound(waiting_.begin(), waiting_.end(), s, before);
  waiting_.insert(at, std::move(s));
}

bool Batcher::start(Sequence& s) {
  s.slot = free_slots_.back();
  s.reserved = s.preemptions >= kMostPreemptions;
  const int tokens = s.reserved ? s.prompt_len() + s.request.sampling.max_tokens : s.length();
  // A page each for those that run, or they would push this one out again at once.
  if (!cache_.start(s, tokens, static_cast<int>(running_.size()))) {
    NIBBLE_CHECK(!running_.empty(), "a request of {} tokens, {} pages and nobody running", tokens,
                 cache_.pages().size());
    s.slot = -1;
    return false;
  }
  free_slots_.pop_back();
  return true;
}

// The same prompt is being computed: in a moment it can be taken from the prefix cache. (Choices of one call come like this.)
bool Batcher::waits_for_twin(const Sequence& s) const {
  if (options_.snapshot_bytes == 0 || s.request.prompt_logprobs || s.prompt_len() < kLeastTwin)
    return false;
  return std::any_of(running_.begin(), running_.end(), [&](const SequencePtr& other) {
    return other->device_len < other->prompt_len() &&
           other->request.cache_salt == s.request.cache_salt &&
           other->request.prompt == s.request.prompt;
  });
}

void Batcher::admit(std::vector<Event>& events) {
  for (std::size_t next = 0; next < waiting_.size() && !free_slots_.empty();) {
    Sequence& s = *waiting_[next];
    if (waits_for_twin(s)) {
      ++next;
      continue;
    }
    const auto place = waiting_.begin() + static_cast<std::ptrdiff_t>(next);
    try {
      if (!start(s)) return;
    } catch (const DeviceLost&) {
      throw;
    } catch (const std::exception& error) {
      spdlog::error("a request could not start: {}", error.what());
      cache_.release(s);
      events.push_back(failed_event(s, {StatusCode::kInternal, error.what(), ""}));
      waiting_.erase(place);
      continue;
    }
    if (s.preemptions == 0) {
      s.usage.cached_tokens = s.device_len;
      stats_.cached_tokens += static_cast<std::uint64_t>(s.device_len);
    }
    const auto before = [](const SequencePtr& a, const SequencePtr& b) {
      return a->arrival < b->arrival;
    };
    const auto at = std::upper_bound(running_.begin(), running_.end(), *place, before);
    running_.insert(at, std::move(*place));
    waiting_.erase(place);
  }
}

bool Batcher::make_room(Sequence& s, int tokens) {
  while (!cache_.grow(s, tokens)) {
    // The last to come, of those that may be asked to; s itself has not reserved, or it would have grown.
    std::size_t victim = running_.size() - 1;
    while (running_[victim]->reserved) --victim;
    const bool own = running_[victim].get() == &s;
    preempt(victim);
    if (own) return false;
  }
  return true;
}

// Every decoding sequence with as many of its drafts as there are rows and pages for.
std::vector<Part> Batcher::decodes() {
  std::vector<Part> parts;
  const auto decoding = static_cast<int>(
      std::count_if(running_.begin(), running_.end(), [](const auto& s) { return s->decoding(); }));
  int spare = model_.limits().max_step_rows - decoding;
  for (std::size_t i = 0; i < running_.size();) {
    Sequence& s = *running_[i];
    if (s.decoding()) {
      int drafts = std::min(static_cast<int>(s.drafts.size()), spare);
      if (drafts > 0 && !cache_.grow(s, s.device_len + 1 + drafts)) drafts = 0;
      // Whoever gives way came later, so it is not in the step yet, or is s, which has left its place.
      if (!make_room(s, s.device_len + 1)) continue;
      spare -= drafts;
      parts.push_back({&s, 1 + drafts});
    }
    ++i;
  }
  return parts;
}

int Batcher::chunk_limit(const Sequence& s) const {
  return s.keep_at.empty() ? s.to_compute()
                           : std::min(s.to_compute(), s.keep_at.front() - s.device_len);
}

// Shares `tokens` among those within their prompts: each may take half of what is left, what nobody wants goes to the first.
void Batcher::add_prefill(std::vector<Part>& parts, int tokens) {
  const std::size_t decoding = parts.size();
  for (const SequencePtr& s : running_) {
    if (s->decoding()) continue;
    if (tokens == 0) break;
    const int rows = std::min(chunk_limit(*s), (tokens + 1) / 2);
    parts.push_back({s.get(), rows});
    tokens -= rows;
  }
  for (std::size_t i = decoding; i < parts.size() && tokens > 0; ++i) {
    const int more = std::min(tokens, chunk_limit(*parts[i].sequence) - parts[i].rows);
    parts[i].rows += more;
    tokens -= more;
  }
}

// How many tokens to draft at the end of this step; kNoDrafter when nobody's next steps would see that the drafter was there.
int Batcher::drafts_for(std::span<const Part> parts) {
  int next = 0;
  bool near = false;
  for (const Part& part : parts) {
    next += part.completes();
    near |= part.sequence->to_compute() - part.rows < kDrafterContext;
  }
  if (model_.limits().max_draft == 0 || !near) return Stepper::kNoDrafter;
  const int most = model_.limits().max_draft;
  if (options_.draft_tokens > 0) return std::min(options_.draft_tokens, most);
  const int depth = cost_.draft_depth(std::max(next, 1), most);
  return depth > 0 ? depth : Stepper::kNoDrafter;
}

std::vector<PartResult> Batcher::run(std::span<const Part> parts, int drafts) {
  // A step that fails fails whoever is in it; the next ones start from sequences of their own.
  try {
    return stepper_.run(parts, drafts);
  } catch (const DeviceLost&) {
    throw;
  } catch (const std::exception& error) {
    spdlog::error("a step of {} requests failed: {}", parts.size(), error.what());
    std::vector<PartResult> results(parts.size());
    for (PartResult& result : results) {
      result.finished = FinishReason::kError;
      result.error = {StatusCode::kInternal, error.what(), ""};
    }
    return results;
  }
}

void Batcher::keep_snapshots(Sequence& s, int before, const PartResult& result) {
  if (result.finished == FinishReason::kError) return;
  try {
    while (!s.keep_at.empty() && s.keep_at.front() <= s.device_len) {
      if (s.keep_at.front() == s.device_len) cache_.keep(s, s.device_len);
      s.keep_at.erase(s.keep_at.begin());
    }
    // The same prompt again needs its last token computed, so its snapshot is from before that. (A sequence that recomputes
    // what it had generated may pass this place within a chunk.)
    if (before < s.prompt_len() && s.device_len == s.prompt_len())
      cache_.keep(s, s.prompt_len() - 1);
    if (result.finished) cache_.keep(s, s.device_len);
  } catch (const DeviceLost& error) {
    lost_ = error.what();  // once the step's events are out
  } catch (const std::exception& error) {
    spdlog::warn("a prefix of {} tokens was not kept: {}", s.device_len, error.what());
  }
}

void Batcher::account(const Part& part, const PartResult& result, int before, int proposed) {
  const Sequence& s = *part.sequence;
  if (before < s.prompt_len())
    stats_.prompt_tokens +=
        static_cast<std::uint64_t>(std::min(s.device_len, s.prompt_len()) - before);
  stats_.generated_tokens += result.tokens.size();
  stats_.drafted_tokens += static_cast<std::uint64_t>(proposed);
  stats_.accepted_tokens += static_cast<std::uint64_t>(result.accepted);
  const bool drafter_knew = s.drafter_from == 0 || before - s.drafter_from >= kDrafterContext;
  if (proposed > 0 && drafter_knew && !result.finished)
    cost_.observe_drafts(proposed, result.accepted);
}

void Batcher::step(std::vector<Event>& events) {
  const std::int64_t start = clock_(), model_before = model_.spent_ns();
  admit(events);
  std::vector<Part> parts = decodes();
  StepShape shape;
  shape.decoding = static_cast<int>(parts.size());
  int rows = 0;
  for (const Part& part : parts) {
    rows += part.rows;
    shape.verified = std::max(shape.verified, part.rows - 1);
  }
  int prefill = std::min(options_.prefill_chunk, model_.limits().max_step_rows - rows);
  if (shape.decoding > 0)
    prefill =
        cost_.prefill_tokens(shape.decoding, shape.verified, options_.step_budget_ms, prefill);
  add_prefill(parts, prefill);
  if (parts.empty()) return;

  std::vector<int> before, proposed;
  for (const Part& part : parts) {
    before.push_back(part.sequence->device_len);
    proposed.push_back(part.drafts());
    if (!part.sequence->decoding()) shape.prefill += part.rows;
  }
  const int drafts = drafts_for(parts);
  shape.drafted = std::max(drafts, 0);
  std::vector<PartResult> results = run(parts, drafts);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    Sequence& s = *parts[i].sequence;
    PartResult& result = results[i];
    account(parts[i], result, before[i], proposed[i]);
    keep_snapshots(s, before[i], result);
    if (!result.finished && result.tokens.empty() && result.prompt.empty()) continue;
    Event event = event_of(s);
    event.prompt = std::move(result.prompt);
    event.tokens = std::move(result.tokens);
    event.finished = result.finished;
    event.error = std::move(result.error);
    events.push_back(std::move(event));
  }
  for (std::size_t i = 0; i < parts.size(); ++i)
    if (results[i].finished) stop(index_of(*parts[i].sequence));
  if (!lost_.empty()) throw DeviceLost(lost_);
  const std::int64_t spent = clock_() - start;
  ++stats_.steps;
  stats_.step_seconds += static_cast<double>(spent) * 1e-9;
  stats_.model_seconds += static_cast<double>(model_.spent_ns() - model_before) * 1e-9;
  cost_.observe(shape, static_cast<double>(spent) * 1e-6);
}

EngineStats Batcher::stats() const {
  EngineStats stats = stats_;
  stats.running = static_cast<int>(running_.size());
  stats.waiting = waiting();
  const kv::PagePool& pages = cache_.pages();
  stats.pages_free = pages.free();
  stats.pages_sequences = pages.owned_by(kv::PageOwner::kSequence);
  stats.pages_prefix_cache = pages.owned_by(kv::PageOwner::kPrefixCache);
  const int in_use = pages.size() - pages.free() - cache_.prefixes().evictable_pages();
  stats.kv_usage = static_cast<double>(in_use) / pages.size();
  stats.pages_host = cache_.prefixes().host_pages();
  stats.snapshots = cache_.prefixes().snapshots();
  stats.snapshot_bytes = cache_.prefixes().snapshot_bytes();
  return stats;
}

}  // namespace nibble::sched
