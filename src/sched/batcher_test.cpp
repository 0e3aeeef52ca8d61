// The scheduler's decisions in virtual time, over a model that remembers whose tokens lie where: whatever comes when, and
// whatever fails, each request gets its own answer or a clear end, and no page is lost.
#include "sched/batcher.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "sched/testing/witness_model.h"

namespace nibble::sched {
namespace {

using testing::WitnessModel;
using testing::WitnessSpec;

Request request(RequestId id, int prompt_len, int max_tokens, unsigned seed = 1) {
  std::mt19937 random(seed);
  Request r;
  r.id = id;
  for (int i = 0; i < prompt_len; ++i) r.prompt.push_back(static_cast<TokenId>(2 + random() % 60));
  r.sampling.max_tokens = max_tokens;
  r.sampling.temperature = 0.0f;
  r.sampling.ignore_eos = true;
  return r;
}

// A batcher, its model, and what the requests got.
class Simulation {
 public:
  struct Reply {
    std::vector<TokenId> tokens;
    std::vector<GeneratedToken> prompt;
    std::optional<FinishReason> finished;
    Status error;
    Usage usage;
    std::int64_t first_ns = -1, last_ns = -1, worst_gap_ns = 0;
  };

  explicit Simulation(const WitnessSpec& spec, EngineOptions options = default_options())
      : model(spec), batcher(model, options, [this] { return model.now_ns; }) {}

  static EngineOptions default_options() {
    EngineOptions options;
    options.prefill_chunk = 48;
    return options;
  }

  void add(const Request& r) {
    asked[r.id] = r;
    batcher.add(r);
  }
  void step() {
    std::vector<Event> events;
    batcher.step(events);
    take(events);
  }
  void cancel(RequestId id) {
    std::vector<Event> events;
    batcher.cancel(id, events);
    take(events);
  }
  void finish(int most_steps = 100000) {
    while (!batcher.idle() && most_steps-- > 0) step();
    ASSERT_TRUE(batcher.idle());
  }
  // Every reply is the request's own; nothing is left behind.
  void check_all() {
    for (const auto& [id, r] : asked) {
      const Reply& reply = replies[id];
      ASSERT_TRUE(reply.finished) << "request " << id;
      const std::vector<TokenId> answer = model.answer(r);
      if (*reply.finished == FinishReason::kCancelled || *reply.finished == FinishReason::kError) {
        ASSERT_LE(reply.tokens.size(), answer.size());
        EXPECT_TRUE(std::equal(reply.tokens.begin(), reply.tokens.end(), answer.begin())) << id;
        EXPECT_EQ(*reply.finished == FinishReason::kError, !reply.error.message.empty());
      } else {
        EXPECT_EQ(reply.tokens, answer) << "request " << id;
      }
    }
    EXPECT_TRUE(model.problems().empty()) << model.problems().front();
    EngineStats stats = batcher.stats();
    EXPECT_EQ(stats.pages_sequences, 0);
    EXPECT_EQ(stats.kv_usage, 0.0);
    batcher.reset_prefix_cache();
    stats = batcher.stats();
    EXPECT_EQ(stats.pages_prefix_cache, 0);
    EXPECT_EQ(stats.pages_free, model.limits().pages);
    EXPECT_EQ(stats.snapshots, 0);
    EXPECT_EQ(stats.snapshot_bytes, 0);
  }

  WitnessModel model;
  Batcher batcher;
  std::map<RequestId, Request> asked;
  std::map<RequestId, Reply> replies;

 private:
  void take(std::vector<Event>& events) {
    for (Event& event : events) {
      Reply& reply = replies[event.request];
      EXPECT_FALSE(reply.finished) << "an event after the last of request " << event.request;
      if (!event.tokens.empty()) {
        if (reply.first_ns < 0) reply.first_ns = model.now_ns;
        if (reply.last_ns >= 0)
          reply.worst_gap_ns = std::max(reply.worst_gap_ns, model.now_ns - reply.last_ns);
        reply.last_ns = model.now_ns;
      }
      for (const GeneratedToken& token : event.tokens) reply.tokens.push_back(token.token);
      if (!event.prompt.empty()) reply.prompt = event.prompt;
      reply.finished = event.finished;
      reply.error = event.error;
      reply.usage = event.usage;
    }
  }
};

// Prompts that share beginnings, as conversations do.
Request random_request(RequestId id, std::mt19937& random, int longest) {
  const unsigned topic = random() % 4;
  Request r = request(id, 1 + static_cast<int>(random() % static_cast<unsigned>(longest)),
                      static_cast<int>(random() % 40), topic);
  const std::size_t own = random() % (r.prompt.size() + 1);
  if (random() % 2)
    for (std::size_t i = own; i < r.prompt.size(); ++i)
      r.prompt[i] = static_cast<TokenId>(2 + random() % 60);
  r.sampling.temperature = random() % 3 == 0 ? 0.8f : 0.0f;
  r.sampling.seed = random();
  r.sampling.ignore_eos = random() % 2 == 0;
  r.prompt_logprobs = random() % 10 == 0;
  if (random() % 4 == 0) r.cache_salt = "another";
  return r;
}

void run_traffic(const WitnessSpec& spec, const EngineOptions& options, int requests, int longest,
                 std::mt19937& random, bool cancels) {
  Simulation sim(spec, options);
  RequestId next = 1;
  while (next <= static_cast<RequestId>(requests) || !sim.batcher.idle()) {
    if (next <= static_cast<RequestId>(requests) && (sim.batcher.idle() || random() % 3 == 0))
      for (unsigned i = random() % 4 + 1; i-- > 0 && next <= static_cast<RequestId>(requests);)
        sim.add(random_request(next++, random, longest));
    if (cancels && random() % 8 == 0) sim.cancel(1 + random() % next);
    if (random() % 200 == 0) sim.batcher.reset_prefix_cache();
    sim.step();
  }
  sim.check_all();
}

TEST(Batcher, RandomTrafficGetsItsOwnAnswers) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const int rounds = std::getenv("NIBBLE_TEST_SHORT") ? 2 : 6;
  for (int round = 0; round < rounds; ++round) {
    WitnessSpec spec;
    spec.slots = 1 + static_cast<int>(random() % 8);
    spec.max_draft = static_cast<int>(random() % 5);
    spec.max_step_rows = 16 + static_cast<int>(random() % 100);
    spec.row_ns = 50'000;
    spec.draft_ns = 200'000;
    EngineOptions options = Simulation::default_options();
    options.prefill_chunk = 1 + static_cast<int>(random() % 80);
    options.snapshot_bytes = round % 3 == 0 ? 0 : 1 << (8 + random() % 12);
    options.host_cache_bytes = round % 2 == 0 ? 0 : 1 << (10 + random() % 6);
    spec.pages = 16 + static_cast<int>(random() % 48);
    SCOPED_TRACE("round " + std::to_string(round));
    run_traffic(spec, options, 150, 700, random, true);
  }
}

TEST(Batcher, APoolOfATenthOfTheDemandFinishesEveryone) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  WitnessSpec spec;
  spec.slots = 16;
  spec.max_step_rows = 256;
  spec.pages = 8;  // 16 sequences of up to 5 pages
  Simulation sim(spec);
  std::uint64_t most = 0;
  for (RequestId id = 1; id <= 120; ++id) {
    Request r = random_request(id, random, 300);
    r.sampling.max_tokens = 50 + static_cast<int>(random() % 900);
    r.sampling.ignore_eos = true;
    sim.add(r);
  }
  sim.finish();
  most = sim.batcher.stats().preemptions;
  EXPECT_GT(most, 0u) << "the pool was never short";
  EXPECT_LE(most, 2u * 120u) << "a request may be put back twice";
  sim.check_all();
}

TEST(Batcher, TheSamePromptAgainIsComputedFromItsLastToken) {
  Simulation sim(WitnessSpec{});
  sim.add(request(1, 600, 10));
  sim.finish();
  sim.add(request(2, 600, 10));
  sim.finish();
  EXPECT_EQ(sim.replies[1].usage.cached_tokens, 0);
  EXPECT_EQ(sim.replies[2].usage.cached_tokens, 599);
  Request longer = request(3, 600, 10);
  longer.prompt.insert(longer.prompt.end(), sim.replies[2].tokens.begin(),
                       sim.replies[2].tokens.end());
  longer.prompt.push_back(17);
  sim.add(longer);  // the next turn
  sim.finish();
  EXPECT_GE(sim.replies[3].usage.cached_tokens, 608);
  Request salted = request(4, 600, 10);
  salted.cache_salt = "mine";
  sim.add(salted);
  sim.finish();
  EXPECT_EQ(sim.replies[4].usage.cached_tokens, 0);
  Request scored = request(5, 600, 10);
  scored.prompt_logprobs = true;
  sim.add(scored);
  sim.finish();
  EXPECT_EQ(sim.replies[5].usage.cached_tokens, 0);
  EXPECT_EQ(sim.replies[5].prompt.size(), 600u);
  sim.batcher.reset_prefix_cache();
  sim.add(request(6, 600, 10));
  sim.finish();
  EXPECT_EQ(sim.replies[6].usage.cached_tokens, 0);
  sim.check_all();
}

// Choices of one call: the prompt is computed once, and whoever comes behind them does not wait for that.
TEST(Batcher, TheSamePromptAtOnceIsComputedOnce) {
  Simulation sim(WitnessSpec{});
  for (RequestId id = 1; id <= 3; ++id) sim.add(request(id, 300, 8));
  sim.add(request(4, 20, 2, 9));
  sim.step();
  EXPECT_EQ(sim.batcher.stats().running, 2);
  sim.finish();
  EXPECT_EQ(sim.replies[1].usage.cached_tokens, 0);
  EXPECT_EQ(sim.replies[2].usage.cached_tokens, 299);
  EXPECT_EQ(sim.replies[3].usage.cached_tokens, 299);
  EXPECT_EQ(sim.batcher.stats().prompt_tokens, 300u + 1u + 1u + 20u);
  sim.check_all();
}

// A system prompt that different questions follow: the second one finds where they part, the third starts there.
TEST(Batcher, ASharedBeginningIsFoundByTheThird) {
  for (const int shared : {40, 300, 512}) {
    Simulation sim(WitnessSpec{});
    for (RequestId id = 1; id <= 4; ++id) {
      Request r = request(id, shared, 5);
      for (unsigned i = 0; i < 30; ++i)
        r.prompt.push_back(static_cast<TokenId>(2 + (id * 7 + i) % 60));
      sim.add(r);
      sim.finish();
    }
    EXPECT_EQ(sim.replies[2].usage.cached_tokens, 0) << shared;
    EXPECT_EQ(sim.replies[3].usage.cached_tokens, shared);
    EXPECT_EQ(sim.replies[4].usage.cached_tokens, shared);
    sim.check_all();
  }
}

TEST(Batcher, ALongPromptCanBeJoinedEverySixteenPages) {
  WitnessSpec spec;
  spec.max_model_len = 16384;
  Simulation sim(spec);
  sim.add(request(1, 9000, 2));
  sim.finish();
  Request other = request(2, 9000, 2);
  other.prompt[8500] = 63;
  sim.add(other);
  sim.finish();
  EXPECT_EQ(sim.replies[2].usage.cached_tokens, 8192);
  sim.check_all();
}

// What had to give way to others comes back from host memory.
TEST(Batcher, PagesComeBackFromTheHost) {
  for (const bool tier : {false, true}) {
    WitnessSpec spec;
    spec.pages = 6;
    EngineOptions options = Simulation::default_options();
    options.host_cache_bytes = tier ? 1 << 20 : 0;
    Simulation sim(spec, options);
    sim.add(request(1, 1000, 5, 1));
    sim.finish();
    sim.add(request(2, 1200, 5, 2));
    sim.finish();
    EXPECT_EQ(sim.batcher.stats().pages_host > 0, tier);
    sim.add(request(3, 1000, 5, 1));
    sim.finish();
    EXPECT_EQ(sim.replies[3].usage.cached_tokens, tier ? 999 : 0);
    sim.check_all();
  }
}

// Six prompts of 4,000 tokens while a stream runs: its gaps stay within the budget's reach, and the prompts are read about as
// fast as chunks of that size can be.
TEST(Batcher, AStreamKeepsMovingWhilePromptsArrive) {
  WitnessSpec spec;
  spec.slots = 8;
  spec.pages = 200;
  spec.max_step_rows = 4096;
  spec.max_draft = 0;
  spec.step_ns = 4'000'000;
  spec.row_ns = 100'000;
  EngineOptions options = Simulation::default_options();
  options.prefill_chunk = 4000;
  options.step_budget_ms = 50.0;
  options.snapshot_bytes = 0;
  Simulation sim(spec, options);
  sim.add(request(1, 20, 2000));
  for (int i = 0; i < 40; ++i) sim.step();
  const std::int64_t begin = sim.model.now_ns;
  for (RequestId id = 2; id <= 7; ++id) sim.add(request(id, 4000, 1, static_cast<unsigned>(id)));
  const auto waiting = [&] {
    for (RequestId id = 2; id <= 7; ++id)
      if (!sim.replies[id].finished) return true;
    return false;
  };
  while (waiting()) sim.step();
  const double seconds = static_cast<double>(sim.model.now_ns - begin) * 1e-9;
  EXPECT_LE(static_cast<double>(sim.replies[1].worst_gap_ns) * 1e-6, 1.5 * options.step_budget_ms);
  // Alone, a chunk that takes the budget.
  const double chunk = (options.step_budget_ms * 1e6 - static_cast<double>(spec.step_ns)) /
                       static_cast<double>(spec.row_ns);
  EXPECT_GE(6 * 4000 / seconds, 0.8 * chunk / (options.step_budget_ms * 1e-3));
  sim.finish();
  sim.check_all();
}

TEST(Batcher, SixteenTogetherTakeTheTimeOfOne) {
  const auto seconds = [](int together) {
    WitnessSpec spec;
    spec.slots = 16;
    spec.max_draft = 0;
    spec.eos_every = 0;
    Simulation sim(spec);
    for (RequestId id = 1; id <= 16; ++id) {
      sim.add(request(id, 8, 200, static_cast<unsigned>(id)));
      if (together == 1) sim.finish();
    }
    sim.finish();
    sim.check_all();
    return static_cast<double>(sim.model.now_ns) * 1e-9;
  };
  EXPECT_GE(seconds(1) / seconds(16), 14.0);
}

double tokens_per_second(WitnessSpec spec, int streams) {
  spec.slots = streams;
  spec.pages = 8 * streams;
  spec.max_step_rows = 32 * streams;
  Simulation sim(spec);
  for (RequestId id = 1; id <= static_cast<RequestId>(streams); ++id)
    sim.add(request(id, 8, 1500, static_cast<unsigned>(id)));
  sim.finish();
  sim.check_all();
  return 1500.0 * streams / (static_cast<double>(sim.model.now_ns) * 1e-9);
}

TEST(Batcher, DraftsAsFarAsItPays) {
  WitnessSpec none;
  none.max_draft = 0;
  none.row_ns = 50'000;
  WitnessSpec drafting = none;
  drafting.max_draft = 4;
  drafting.acceptance = 0.8;
  drafting.draft_ns = 200'000;
  // Rows cost little, drafts a tenth of a step: four pay.
  EXPECT_GE(tokens_per_second(drafting, 1) / tokens_per_second(none, 1), 1.6);
  // A drafted row costs what a step does, or nothing is ever right: no drafting, and no loss.
  for (const double acceptance : {0.0, 0.8}) {
    WitnessSpec dear = drafting, plain = none;
    dear.acceptance = acceptance;
    dear.row_ns = plain.row_ns = acceptance > 0 ? 4'000'000 : 50'000;
    EXPECT_GE(tokens_per_second(dear, 4) / tokens_per_second(plain, 4), 0.95) << acceptance;
  }
}

TEST(Batcher, AnythingMayFailOnce) {
  for (int call = 0; call < 120; ++call) {
    SCOPED_TRACE("call " + std::to_string(call));
    WitnessSpec spec;
    spec.slots = 3;
    Simulation sim(spec);
    sim.model.fail_after = call;
    for (RequestId id = 1; id <= 6; ++id) {
      Request r = request(id, 20 + 100 * static_cast<int>(id % 3), 12);
      r.prompt_logprobs = id == 4;
      sim.add(r);
    }
    sim.finish();
    int failed = 0;
    for (const auto& [id, reply] : sim.replies) failed += *reply.finished == FinishReason::kError;
    EXPECT_LE(failed, 3);
    sim.check_all();
  }
}

// A device that is gone ends everybody, each once, whatever it was lost in.
TEST(Batcher, ALostDeviceEndsEveryone) {
  for (int call = 1; call < 60; ++call) {
    SCOPED_TRACE("call " + std::to_string(call));
    WitnessSpec spec;
    spec.slots = 3;
    WitnessModel model(spec);
    model.fail_for_good = true;
    model.fail_after = call;
    Batcher batcher(model, Simulation::default_options(), [&] { return model.now_ns; });
    for (RequestId id = 1; id <= 6; ++id)
      batcher.add(request(id, 20 + 100 * static_cast<int>(id % 3), 12));
    std::vector<Event> events;
    bool lost = false;
    while (!lost && !batcher.idle()) {
      try {
        batcher.step(events);
      } catch (const DeviceLost&) {
        lost = true;
      }
    }
    ASSERT_TRUE(lost);
    batcher.fail_all({StatusCode::kInternal, "lost", ""}, events);
    EXPECT_TRUE(batcher.idle());
    std::map<RequestId, int> ends;
    for (const Event& event : events) {
      EXPECT_EQ(ends[event.request], 0) << "an event after the last of request " << event.request;
      ends[event.request] += event.finished.has_value();
    }
    EXPECT_EQ(ends.size(), 6u);
    for (const auto& [id, count] : ends) EXPECT_EQ(count, 1) << "request " << id;
  }
}

TEST(Batcher, CancelledAtAnyStep) {
  for (int steps = 0; steps < 30; ++steps) {
    for (RequestId id = 1; id <= 4; ++id) {
      WitnessSpec spec;
      spec.slots = 2;
      Simulation sim(spec);
      for (RequestId i = 1; i <= 4; ++i) sim.add(request(i, 150, 20, static_cast<unsigned>(i)));
      for (int i = 0; i < steps; ++i) sim.step();
      const bool ended = sim.replies[id].finished.has_value();
      sim.cancel(id);
      sim.cancel(id);
      EXPECT_TRUE(sim.replies[id].finished);
      EXPECT_EQ(sim.replies[id].finished, ended ? FinishReason::kLength : FinishReason::kCancelled);
      sim.finish();
      sim.check_all();
    }
  }
}

TEST(Batcher, NothingToGenerate) {
  Simulation sim(WitnessSpec{});
  sim.add(request(1, 100, 0));
  sim.add(request(2, 1, 0));
  sim.add(request(3, 1, 1));
  sim.finish();
  EXPECT_EQ(sim.replies[1].finished, FinishReason::kLength);
  sim.check_all();
}

// Accounting: prompt tokens that were computed, those that were found, generated ones.
TEST(Batcher, CountsWhatItDid) {
  WitnessSpec spec;
  spec.acceptance = 1.0;
  Simulation sim(spec);
  sim.add(request(1, 100, 30));
  sim.finish();
  sim.add(request(2, 100, 30));
  sim.finish();
  const EngineStats stats = sim.batcher.stats();
  EXPECT_EQ(stats.prompt_tokens, 101u);
  EXPECT_EQ(stats.cached_tokens, 99u);
  EXPECT_EQ(stats.generated_tokens, 60u);
  EXPECT_GT(stats.drafted_tokens, 0u);
  EXPECT_GT(stats.accepted_tokens, 0u);
  EXPECT_DOUBLE_EQ(stats.step_seconds, stats.model_seconds) << "virtual time passes in the model";
  EXPECT_GT(stats.step_seconds, 0.0);
}

}  // namespace
}  // namespace nibble::sched
