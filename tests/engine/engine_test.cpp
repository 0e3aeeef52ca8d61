// The engine as the server sees it, on a random checkpoint: same request, same answer;
// cancellation; limits; failures.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "golden/model_under_test.h"
#include "nibble/engine.h"

namespace nibble {
namespace {

using testing::ScratchFolder;

// Collects events on behalf of several requests.
class Client {
 public:
  explicit Client(Engine& engine) : engine_(engine) {
    engine.on_events([this] {
      const std::lock_guard lock(mutex_);
      ready_ = true;
      wake_.notify_all();
    });
  }

  struct Reply {
    std::vector<TokenId> tokens;
    std::vector<GeneratedToken> generated, prompt;
    std::optional<FinishReason> finished;
    Status error;
    Usage usage;
    int events = 0;
  };

  // Waits until `done` says so of the collected replies, at most 60 s.
  template <typename Done>
  void wait(Done done) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!done()) {
      {
        std::unique_lock lock(mutex_);
        ASSERT_TRUE(wake_.wait_until(lock, deadline, [&] { return ready_; }))
            << "no event for 60 s";
        ready_ = false;
      }
      for (Event& event : engine_.take_events()) {
        Reply& reply = replies[event.request];
        EXPECT_FALSE(reply.finished) << "an event after the last of request " << event.request;
        ++reply.events;
        for (GeneratedToken& token : event.tokens) {
          reply.tokens.push_back(token.token);
          reply.generated.push_back(std::move(token));
        }
        if (!event.prompt.empty()) reply.prompt = std::move(event.prompt);
        reply.finished = event.finished;
        reply.error = event.error;
        reply.usage = event.usage;
      }
    }
  }

  Reply ask(Request request) {
    const RequestId id = request.id;
    const auto accepted = engine_.submit(std::move(request));
    EXPECT_TRUE(accepted.ok());
    wait([&] { return replies[id].finished.has_value(); });
    return replies[id];
  }

  std::map<RequestId, Reply> replies;

 private:
  Engine& engine_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool ready_ = false;
};

class EngineTest : public ::testing::TestWithParam<DeviceKind> {
 protected:
  void SetUp() override {
    if (!testing::has_device(GetParam())) GTEST_SKIP() << "no NVIDIA GPU, or built without CUDA";
  }
  static void SetUpTestSuite() {
    folder_ = new ScratchFolder;
    testing::write_random_checkpoint(folder_->path(), testing::RandomCheckpointSpec{});
  }
  static void TearDownTestSuite() {
    delete folder_;
    folder_ = nullptr;
  }

  static EngineOptions options() {
    EngineOptions o;
    o.device = GetParam();
    o.model_dir = folder_->path().string();
    o.threads = 2;
    o.max_model_len = 600;
    return o;
  }

  static Request request(RequestId id, int prompt_len, int max_tokens, float temperature = 0.0f) {
    Request r;
    r.id = id;
    for (int i = 0; i < prompt_len; ++i) r.prompt.push_back((i * 37 + 11) % 300 + 2);
    r.sampling.temperature = temperature;
    r.sampling.max_tokens = max_tokens;
    r.sampling.seed = 9;
    r.sampling.ignore_eos = true;
    return r;
  }

  static ScratchFolder* folder_;
};

ScratchFolder* EngineTest::folder_ = nullptr;

TEST_P(EngineTest, SameAnswerDraftedOrNotAndInAnyChunking) {
  std::vector<std::vector<TokenId>> answers;
  int drafted = 0, accepted = 0;
  for (const int draft : {0, 1, 4}) {
    for (const int chunk : {256, 7}) {
      EngineOptions o = options();
      o.draft = draft > 0;
      o.draft_tokens = draft;
      o.prefill_chunk = chunk;
      o.snapshot_bytes = 0;
      const auto engine = Engine::load(o);
      Client client(*engine);
      std::vector<TokenId> all;
      RequestId id = 1;
      // Under the sanitizers the threads matter, not the number of prompts.
      const bool brief = std::getenv("NIBBLE_TEST_SHORT") != nullptr;
      for (const float temperature :
           brief ? std::vector<float>{1.0f} : std::vector<float>{0.0f, 1.0f, 0.3f}) {
        for (const int prompt_len :
             brief ? std::vector<int>{5, 130} : std::vector<int>{1, 5, 130, 257}) {
          const Client::Reply reply = client.ask(request(id++, prompt_len, 40, temperature));
          EXPECT_EQ(reply.finished, FinishReason::kLength);
          EXPECT_EQ(reply.tokens.size(), 40u);
          EXPECT_EQ(reply.usage.prompt_tokens, prompt_len);
          EXPECT_EQ(reply.usage.completion_tokens, 40);
          all.insert(all.end(), reply.tokens.begin(), reply.tokens.end());
          drafted += reply.usage.drafted_tokens;
          accepted += reply.usage.accepted_tokens;
        }
      }
      answers.push_back(all);
    }
  }
  for (const auto& answer : answers) EXPECT_EQ(answer, answers[0]);
  EXPECT_GT(drafted, 0);
  EXPECT_LE(accepted, drafted);
}

// With random weights hardly any draft is right. With a head of zeros every logit is 0, so that at temperature 0 the model says
// token 0 all the time, and so does its drafter: all are.
TEST_P(EngineTest, SameAnswerWithDsparkBlocks) {
  for (const bool right : {false, true}) {
    testing::RandomCheckpoint checkpoint =
        testing::make_random_checkpoint(testing::golden_spec('d'));
    for (const char* name : {"head.weight", "mtp.2.markov_head.markov_w2.weight"}) {
      std::vector<std::uint8_t>& bytes = checkpoint.tensor(name).bytes;
      if (right) std::fill(bytes.begin(), bytes.end(), std::uint8_t{0});
    }
    const ScratchFolder folder;
    testing::write_checkpoint(folder.path(), checkpoint);
    std::vector<std::vector<TokenId>> answers;
    for (const int draft : {0, 1, 5}) {
      EngineOptions o = options();
      o.model_dir = folder.path().string();
      o.draft = draft > 0;
      o.draft_tokens = draft;
      const auto engine = Engine::load(o);
      EXPECT_EQ(engine->info().drafting, draft > 0);
      Client client(*engine);
      std::vector<TokenId> all;
      for (const int prompt_len : {1, 131}) {
        Request r =
            request(static_cast<RequestId>(prompt_len), prompt_len, 40, right ? 0.0f : 0.9f);
        if (!right) {
          r.sampling.presence_penalty = 0.5f;
          r.sampling.repetition_penalty = 1.2f;
        }
        const Client::Reply reply = client.ask(r);
        EXPECT_EQ(reply.tokens.size(), 40u);
        all.insert(all.end(), reply.tokens.begin(), reply.tokens.end());
        EXPECT_EQ(reply.usage.drafted_tokens > 0, draft > 0);
        if (right) {
          EXPECT_EQ(reply.usage.accepted_tokens, reply.usage.drafted_tokens) << draft;
          EXPECT_GE(reply.usage.accepted_tokens, 38 * draft / (draft + 1) - draft);
        }
      }
      answers.push_back(all);
    }
    EXPECT_EQ(answers[1], answers[0]);
    EXPECT_EQ(answers[2], answers[0]);
  }
}

TEST_P(EngineTest, LogprobsAreTheSameBitsDraftedOrNot) {
  std::vector<std::vector<float>> seen;
  for (const bool draft : {false, true}) {
    EngineOptions o = options();
    o.draft = draft;
    const auto engine = Engine::load(o);
    Client client(*engine);
    Request r = request(1, 20, 30, 0.8f);
    r.sampling.logprobs = 3;
    r.prompt_logprobs = true;
    const Client::Reply reply = client.ask(r);
    ASSERT_EQ(reply.prompt.size(), 20u);
    EXPECT_FALSE(reply.prompt[0].logprob.has_value());
    std::vector<float> values;
    for (const auto* list : {&reply.prompt, &reply.generated})
      for (const GeneratedToken& token : *list) {
        if (!token.logprob) continue;
        EXPECT_EQ(token.top.size(), 3u);
        EXPECT_LE(*token.logprob, 0.0f);
        values.push_back(*token.logprob);
        for (const TokenLogprob& entry : token.top) values.push_back(entry.logprob);
      }
    EXPECT_EQ(values.size(), (19u + 30u) * 4u);
    seen.push_back(values);
  }
  EXPECT_EQ(seen[0], seen[1]);
}

TEST_P(EngineTest, PromptLogprobsDoNotDependOnTheChunk) {
  std::vector<std::vector<float>> seen;
  for (const int chunk : {1, 9, 256}) {
    EngineOptions o = options();
    o.prefill_chunk = chunk;
    const auto engine = Engine::load(o);
    Client client(*engine);
    Request r = request(1, 31, 0);
    r.prompt_logprobs = true;
    const Client::Reply reply = client.ask(r);
    EXPECT_EQ(reply.finished, FinishReason::kLength);
    EXPECT_TRUE(reply.tokens.empty());
    std::vector<float> values;
    for (const GeneratedToken& token : reply.prompt) values.push_back(token.logprob.value_or(1.0f));
    EXPECT_EQ(values.size(), 31u);
    seen.push_back(values);
  }
  EXPECT_EQ(seen[0], seen[1]);
  EXPECT_EQ(seen[0], seen[2]);
}

TEST_P(EngineTest, QueueKeepsOrderAndAnswers) {
  const auto engine = Engine::load(options());
  Client client(*engine);
  const std::vector<TokenId> alone = client.ask(request(100, 40, 25)).tokens;
  for (RequestId id = 1; id <= 6; ++id)
    ASSERT_TRUE(engine->submit(request(id, id % 2 ? 40 : 9, 25)).ok());
  client.wait([&] {
    for (RequestId id = 1; id <= 6; ++id)
      if (!client.replies[id].finished) return false;
    return true;
  });
  for (const RequestId id : {1, 3, 5}) EXPECT_EQ(client.replies[id].tokens, alone) << id;
  const EngineStats stats = engine->stats();
  EXPECT_EQ(stats.waiting, 0);
  EXPECT_EQ(stats.generated_tokens, 7u * 25u);
  EXPECT_EQ(stats.prompt_tokens + stats.cached_tokens, 4u * 40u + 3u * 9u);
}

// Requests of every kind, one at a time and then all together with arrivals in the middle of steps: the same tokens and the
// same bits of every log-probability.
TEST_P(EngineTest, TogetherIsTheSameAsAlone) {
  const bool brief = std::getenv("NIBBLE_TEST_SHORT") != nullptr;
  const int count = brief ? 8 : 24;
  const unsigned longest = brief ? 60 : 300;
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  std::vector<Request> requests;
  for (int i = 0; i < count; ++i) {
    Request r = request(static_cast<RequestId>(i + 1), 1 + static_cast<int>(random() % longest),
                        1 + static_cast<int>(random() % 30), i % 3 == 0 ? 0.0f : 0.9f);
    for (TokenId& id : r.prompt) id = static_cast<TokenId>(2 + random() % 300);
    r.sampling.seed = random();
    r.sampling.ignore_eos = i % 2 == 0;
    r.sampling.logprobs = i % 4 == 0 ? -1 : 2;
    r.prompt_logprobs = i % 5 == 1;
    requests.push_back(r);
  }
  std::map<RequestId, Client::Reply> alone;
  {
    EngineOptions o = options();
    o.max_num_seqs = 1;
    const auto engine = Engine::load(o);
    Client client(*engine);
    for (const Request& r : requests) alone[r.id] = client.ask(r);
  }
  for (const int chunk : {16, 256}) {
    EngineOptions o = options();
    o.max_num_seqs = 7;
    o.prefill_chunk = chunk;
    const auto engine = Engine::load(o);
    Client client(*engine);
    std::shuffle(requests.begin(), requests.end(), random);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      ASSERT_TRUE(engine->submit(requests[i]).ok());
      if (i % 5 == 4) std::this_thread::sleep_for(std::chrono::milliseconds(random() % 20));
    }
    client.wait([&] {
      return std::all_of(requests.begin(), requests.end(), [&](const Request& r) {
        return client.replies[r.id].finished.has_value();
      });
    });
    const auto same = [](const std::vector<GeneratedToken>& a,
                         const std::vector<GeneratedToken>& b) {
      return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                        [](const GeneratedToken& x, const GeneratedToken& y) {
                          return x.token == y.token && x.logprob == y.logprob &&
                                 std::equal(x.top.begin(), x.top.end(), y.top.begin(), y.top.end(),
                                            [](const TokenLogprob& p, const TokenLogprob& q) {
                                              return p.token == q.token && p.logprob == q.logprob;
                                            });
                        });
    };
    for (const Request& r : requests) {
      const Client::Reply &one = alone[r.id], &many = client.replies[r.id];
      EXPECT_EQ(many.finished, one.finished) << "request " << r.id;
      EXPECT_TRUE(same(many.generated, one.generated)) << "request " << r.id << " chunk " << chunk;
      EXPECT_TRUE(same(many.prompt, one.prompt)) << "request " << r.id << " chunk " << chunk;
    }
    EXPECT_EQ(engine->stats().running, 0);
    EXPECT_EQ(engine->stats().kv_usage, 0.0);
  }
}

// What was computed for an earlier request is as good as computed again: the same tokens and the same bits, for a repeated
// prompt, a shared beginning, the next turn of a conversation, and with a cache so small that sequences push each other out.
TEST_P(EngineTest, CachedOrPreemptedIsTheSameAsCold) {
  const bool brief = std::getenv("NIBBLE_TEST_SHORT") != nullptr;
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  std::vector<Request> requests;
  const auto add = [&](std::vector<TokenId> prompt, int max_tokens) {
    Request r = request(static_cast<RequestId>(requests.size() + 1), 1, max_tokens,
                        random() % 2 ? 0.9f : 0.0f);
    r.prompt = std::move(prompt);
    r.sampling.seed = random();
    r.sampling.logprobs = 1;
    requests.push_back(r);
  };
  for (const int shared : brief ? std::vector<int>{40} : std::vector<int>{20, 131, 256, 300}) {
    std::vector<TokenId> system;
    for (int i = 0; i < shared; ++i) system.push_back(static_cast<TokenId>(2 + random() % 300));
    for (int question = 0; question < 3; ++question) {
      std::vector<TokenId> prompt = system;
      for (unsigned i = random() % 40 + 1; i > 0; --i)
        prompt.push_back(static_cast<TokenId>(2 + random() % 300));
      add(prompt, 12);
      add(prompt, 12);
    }
  }
  std::map<RequestId, Client::Reply> cold;
  {
    EngineOptions o = options();
    o.snapshot_bytes = 0;
    const auto engine = Engine::load(o);
    Client client(*engine);
    // Each one's next turn begins with its answer.
    for (std::size_t i = 0, first = requests.size(); i < first; ++i) {
      std::vector<TokenId> next = requests[i].prompt;
      const Client::Reply reply = client.ask(requests[i]);
      next.insert(next.end(), reply.tokens.begin(), reply.tokens.end());
      next.push_back(7);
      if (i % 3 == 0) add(next, 5);
    }
    for (Request& r : requests) {
      r.id += 1000;
      cold[r.id] = client.ask(r);
      EXPECT_EQ(cold[r.id].usage.cached_tokens, 0);
    }
    EXPECT_EQ(engine->stats().pages_prefix_cache, 0);
  }
  const auto same = [&](const Client::Reply& one, const Client::Reply& other) {
    if (one.generated.size() != other.generated.size() || one.finished != other.finished)
      return false;
    for (std::size_t i = 0; i < one.generated.size(); ++i)
      if (one.generated[i].token != other.generated[i].token ||
          one.generated[i].logprob != other.generated[i].logprob)
        return false;
    return true;
  };
  const auto ended = [&](Client& client) {
    client.wait([&] {
      return std::all_of(requests.begin(), requests.end(), [&](const Request& r) {
        return client.replies[r.id].finished.has_value();
      });
    });
  };
  // One after the other, in order: everything that can be found is there. Then together and short of pages.
  for (const bool scarce : {false, true}) {
    EngineOptions o = options();
    o.prefill_chunk = scarce ? 33 : 256;
    o.draft_tokens = scarce ? 2 : 1;
    o.max_num_seqs = scarce ? 6 : 1;
    if (scarce) {
      o.max_total_tokens = 1024;
      o.snapshot_bytes = 4 << 20;
      o.host_cache_bytes = 64 << 20;
    }
    const auto engine = Engine::load(o);
    Client client(*engine);
    for (const Request& r : requests) ASSERT_TRUE(engine->submit(r).ok());
    ended(client);
    int found = 0;
    for (const Request& r : requests) {
      EXPECT_TRUE(same(client.replies[r.id], cold[r.id]))
          << "request " << r.id << " of " << r.prompt.size() << " tokens, "
          << client.replies[r.id].usage.cached_tokens << " cached, scarce " << scarce;
      found += client.replies[r.id].usage.cached_tokens;
    }
    EXPECT_GT(found, scarce ? -1 : 100);
    engine->reset_prefix_cache();
    client.ask(request(5000, 3, 1));
    engine->reset_prefix_cache();
    client.ask(request(5001, 3, 1));
    EXPECT_EQ(engine->stats().pages_sequences, 0);
  }
}

// A pool of two long sequences under four: some go back to the queue and come again, to the same bits.
TEST_P(EngineTest, PreemptedIsTheSameAsAlone) {
  std::vector<Client::Reply> alone;
  for (const bool scarce : {false, true}) {
    EngineOptions o = options();
    o.max_num_seqs = scarce ? 4 : 1;
    o.max_total_tokens = scarce ? 1280 : 0;
    o.snapshot_bytes = scarce ? 1 << 20 : 0;
    const auto engine = Engine::load(o);
    Client client(*engine);
    const int tokens = std::getenv("NIBBLE_TEST_SHORT") ? 60 : 330;
    for (RequestId id = 1; id <= 4; ++id) {
      Request r = request(id, 230, tokens, 0.9f);
      r.sampling.seed = id;
      r.sampling.logprobs = 0;
      ASSERT_TRUE(engine->submit(r).ok());
    }
    client.wait([&] {
      for (RequestId id = 1; id <= 4; ++id)
        if (!client.replies[id].finished) return false;
      return true;
    });
    for (RequestId id = 1; id <= 4; ++id) {
      const Client::Reply& reply = client.replies[id];
      if (!scarce) {
        alone.push_back(reply);
        continue;
      }
      const Client::Reply& expected = alone[static_cast<std::size_t>(id - 1)];
      EXPECT_EQ(reply.tokens, expected.tokens) << id;
      ASSERT_EQ(reply.generated.size(), expected.generated.size());
      for (std::size_t i = 0; i < reply.generated.size(); ++i)
        ASSERT_EQ(reply.generated[i].logprob, expected.generated[i].logprob) << id << " at " << i;
    }
    EXPECT_EQ(engine->stats().preemptions > 0, scarce);
    EXPECT_EQ(engine->stats().pages_sequences, 0);
  }
}

TEST_P(EngineTest, CancelRunningAndWaiting) {
  EngineOptions o = options();
  o.max_num_seqs = 1;
  const auto engine = Engine::load(o);
  Client client(*engine);
  ASSERT_TRUE(engine->submit(request(1, 30, 500)).ok());
  ASSERT_TRUE(engine->submit(request(2, 30, 500)).ok());
  ASSERT_TRUE(engine->submit(request(3, 30, 5)).ok());
  client.wait([&] { return client.replies[1].tokens.size() >= 3; });
  engine->cancel(2);
  engine->cancel(1);
  engine->cancel(77);  // never seen: ignored
  client.wait([&] { return client.replies[3].finished.has_value(); });
  EXPECT_EQ(client.replies[1].finished, FinishReason::kCancelled);
  EXPECT_LT(client.replies[1].tokens.size(), 500u);
  EXPECT_EQ(client.replies[2].finished, FinishReason::kCancelled);
  EXPECT_TRUE(client.replies[2].tokens.empty());
  EXPECT_EQ(client.replies[3].finished, FinishReason::kLength);
  engine->cancel(1);  // finished: ignored
  EXPECT_EQ(client.ask(request(4, 3, 2)).tokens.size(), 2u);
}

// Whoever submits and cancels at the same time: every accepted request gets one last event, and the
// notification before it is never lost, so a client that sleeps between notifications sees them all.
TEST_P(EngineTest, EveryRequestEndsOnceWhateverTheThreadsDo) {
  const auto engine = Engine::load(options());
  Client client(*engine);
  const int threads = 4, each = std::getenv("NIBBLE_TEST_SHORT") ? 30 : 150;
  std::mutex mutex;
  std::vector<RequestId> accepted;  // under mutex
  std::vector<std::thread> clients;
  for (int thread = 0; thread < threads; ++thread) {
    clients.emplace_back([&, thread] {
      std::mt19937 random(static_cast<unsigned>(thread));
      for (int i = 0; i < each; ++i) {
        const RequestId id = static_cast<RequestId>(1 + thread * each + i);
        const int tokens = static_cast<int>(random() % 6);
        if (engine->submit(request(id, 1 + static_cast<int>(random() % 5), tokens)).ok()) {
          const std::lock_guard lock(mutex);
          accepted.push_back(id);
        }
        // At once (still waiting), a little later (running), or never.
        if (random() % 3 == 0) {
          if (random() % 2) std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
          engine->cancel(id);
        }
        if (random() % 4 == 0)
          std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
      }
    });
  }
  for (std::thread& thread : clients) thread.join();
  EXPECT_GT(accepted.size(), 0u);
  client.wait([&] {
    return std::all_of(accepted.begin(), accepted.end(),
                       [&](RequestId id) { return client.replies[id].finished.has_value(); });
  });
  EXPECT_EQ(client.replies.size(), accepted.size()) << "events of refused requests";
  EXPECT_EQ(engine->stats().waiting, 0);
  EXPECT_EQ(client.ask(request(100000, 3, 2)).tokens.size(), 2u);
}

TEST_P(EngineTest, RefusesWhatCannotRun) {
  EngineOptions o = options();
  o.max_waiting = 2;
  o.max_num_seqs = 1;
  const auto engine = Engine::load(o);
  Client client(*engine);
  const auto code = [&](Request r) {
    const auto result = engine->submit(std::move(r));
    return result.ok() ? std::string("accepted") : result.status().message;
  };
  EXPECT_NE(code(request(1, 0, 5)).find("empty"), std::string::npos);
  Request outside = request(1, 4, 5);
  outside.prompt[2] = engine->info().vocab_size;
  EXPECT_NE(code(outside).find("token 2 of the prompt is 320"), std::string::npos) << code(outside);
  EXPECT_NE(code(request(1, 590, 11)).find("context is 600 tokens; the request asks for 601"),
            std::string::npos);
  EXPECT_EQ(code(request(10, 500, 100)), "accepted");  // exactly full
  client.wait([&] { return client.replies[10].finished.has_value(); });
  EXPECT_EQ(client.replies[10].tokens.size(), 100u);
  ASSERT_TRUE(engine->submit(request(20, 5, 400)).ok());
  client.wait([&] { return !client.replies[20].tokens.empty(); });
  EXPECT_EQ(code(request(21, 5, 5)), "accepted");
  // All or none.
  const auto refused = [&](const std::vector<Request>& several) {
    return engine->submit(several).status().code;
  };
  EXPECT_EQ(refused({request(22, 5, 5), request(23, 5, 5)}), StatusCode::kResourceExhausted);
  EXPECT_EQ(refused({request(22, 5, 5), outside}), StatusCode::kInvalidArgument);
  EXPECT_EQ(refused({request(22, 5, 5), request(23, 5, 5), request(24, 5, 5)}),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(engine->stats().waiting, 1);
  EXPECT_EQ(code(request(22, 5, 5)), "accepted");
  const auto full = engine->submit(request(23, 5, 5));
  ASSERT_FALSE(full.ok());
  EXPECT_EQ(full.status().code, StatusCode::kResourceExhausted);
  engine->cancel(20);
}

TEST_P(EngineTest, EndOfSequenceStopsUnlessIgnored) {
  const auto engine = Engine::load(options());
  Client client(*engine);
  // A hot, seeded request meets every token of a 320-word vocabulary soon; the same one that
  // ignores it goes on alike.
  Request r = request(1, 3, 550, 4.0f);
  r.sampling.ignore_eos = false;
  const Client::Reply stopped = client.ask(r);
  const Client::Reply ignored = client.ask(request(2, 3, 550, 4.0f));
  ASSERT_EQ(ignored.tokens.size(), 550u);
  const auto eos =
      std::find(ignored.tokens.begin(), ignored.tokens.end(), engine->info().eos_token);
  ASSERT_NE(eos, ignored.tokens.end()) << "choose another seed";
  EXPECT_EQ(stopped.finished, FinishReason::kStop);
  EXPECT_EQ(stopped.tokens, std::vector<TokenId>(ignored.tokens.begin(), eos));
}

TEST_P(EngineTest, DestructionWithWorkInFlight) {
  const auto engine = Engine::load(options());
  ASSERT_TRUE(engine->submit(request(1, 30, 500)).ok());
  ASSERT_TRUE(engine->submit(request(2, 30, 500)).ok());
}

TEST_P(EngineTest, RestartGivesTheSameAnswerAndFingerprint) {
  std::vector<std::vector<TokenId>> answers;
  std::vector<std::string> prints;
  for (int start = 0; start < 2; ++start) {
    EngineOptions o = options();
    o.threads = 1 + 2 * start;  // nor does it depend on the number of threads
    const auto engine = Engine::load(o);
    Client client(*engine);
    answers.push_back(client.ask(request(1, 200, 30, 0.7f)).tokens);
    prints.push_back(engine->info().fingerprint);
  }
  EXPECT_EQ(answers[0], answers[1]);
  EXPECT_EQ(prints[0], prints[1]);
  EngineOptions exact = options();
  exact.activations = Activations::kExact;
  EXPECT_NE(Engine::load(exact)->info().fingerprint, prints[0]);
}

TEST_P(EngineTest, WithoutDraftingTheDrafterTakesNoMemory) {
  EngineOptions o = options();
  const ModelInfo with = Engine::load(o)->info();
  o.draft = false;
  const ModelInfo without = Engine::load(o)->info();
  EXPECT_TRUE(with.drafting);
  EXPECT_FALSE(without.drafting);
  EXPECT_LT(without.weight_bytes, with.weight_bytes);
  EXPECT_LT(without.cache_bytes, with.cache_bytes);
}

TEST_P(EngineTest, MtpPromisedButAbsentMeansNoDrafting) {
  testing::RandomCheckpoint checkpoint = testing::make_random_checkpoint({});
  std::vector<std::string> names;
  for (const auto& shard : checkpoint.shards)
    for (const auto& tensor : shard.tensors)
      if (tensor.name.rfind("mtp.", 0) == 0) names.push_back(tensor.name);
  ASSERT_GT(names.size(), 10u);
  const ScratchFolder partial;
  const std::string kept = names.back();
  for (const std::string& name : names)
    if (name != kept) checkpoint.remove_tensor(name);
  testing::write_checkpoint(partial.path(), checkpoint);
  EngineOptions o = options();
  o.model_dir = partial.path().string();
  EXPECT_THROW(Engine::load(o), CheckpointError);

  checkpoint.remove_tensor(kept);
  const ScratchFolder none;
  testing::write_checkpoint(none.path(), checkpoint);
  o.model_dir = none.path().string();
  const auto engine = Engine::load(o);
  EXPECT_FALSE(engine->info().drafting);
  ASSERT_FALSE(engine->info().notes.empty());
  EXPECT_NE(engine->info().notes[0].find("no drafting"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Backends, EngineTest,
                         ::testing::Values(DeviceKind::kCpu, DeviceKind::kCuda),
                         [](const ::testing::TestParamInfo<DeviceKind>& tested) {
                           return testing::device_name(tested.param);
                         });

}  // namespace
}  // namespace nibble
