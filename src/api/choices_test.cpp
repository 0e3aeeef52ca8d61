// Several choices in one answer (n): what the client reads of each, and that they begin and end together.
#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "api/testing/answers.h"
#include "api/testing/raw_client.h"
#include "api/testing/test_server.h"
#include "sample/sampler.h"

namespace nibble::api::testing {
namespace {

using std::chrono::milliseconds;

const std::string kChat = "/v1/chat/completions";
const std::string kCompletions = "/v1/completions";
constexpr std::uint64_t kSeed = 7;

std::string ask(const std::string& rest) {
  return R"({"messages":[{"role":"user","content":"hi"}],)" + rest + "}";
}
std::string complete(const std::string& rest) {
  return R"({"prompt":[5,6,7],"max_tokens":1000,)" + rest + "}";
}

// Which choice a request is: told by its seed.
std::size_t choice_of(const Request& request) {
  int index = 0;
  while (index < 128 && sample::choice_seed(kSeed, index) != request.sampling.seed) ++index;
  EXPECT_LT(index, 128);
  return static_cast<std::size_t>(index);
}

// The i-th choice of a request with kSeed is answered with the i-th text.
TestServerOptions answering(const std::vector<std::string>& texts, int tokens_per_step) {
  TestServerOptions options;
  options.engine.script = [texts](const Request& request) {
    return script_ids(texts.at(choice_of(request)));
  };
  options.engine.tokens_per_step = tokens_per_step;
  return options;
}

// What a stream says of one choice; and of all, with index -1: chunks without choices.
Joined joined_choice(const std::string& body, int index) {
  std::string own;
  for (const std::string& event : sse_events(body))
    if (event != "[DONE]" && (index < 0 ? at(event, "choices") == "[]"
                                        : at(event, "choices.0.index") == std::to_string(index)))
      own += "data: " + event + "\n\n";
  return join_stream(own);
}

std::string or_empty(const Json& root, const std::string& path) {
  const std::string value = at(root, path);
  return value == "(absent)" || value == "null" ? "" : value;
}

int tokens_in(const std::string& text) {
  return static_cast<int>(script_ids(text).size());
}

const std::string kTool = R"("tools":[{"type":"function","function":{"name":"bash"}}])";
const std::string kCall =
    "Look.\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"bash\">\n<｜DSML｜parameter "
    "name=\"command\" "
    "string=\"true\">ls</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>";
const std::vector<std::string> kTexts = {"Hello, naïve 深度!<eos>", kCall + "<eos>",
                                         "one STOP two<eos>", "<eos>", kCall + "<eos>"};

// Each choice is the answer to the same request with n = 1 and its seed, streamed and not.
TEST(Choices, AreTheAnswersOfTheirSeeds) {
  for (const int tokens_per_step : {1, 2, 1000}) {
    TestServer server(answering(kTexts, tokens_per_step));
    RawClient client(server.port());
    const std::string rest = kTool + R"(,"stop":"STOP","logprobs":true,"seed":)";
    const std::string body = client.post(kChat, ask(rest + "7,\"n\":5")).body;
    const std::string stream =
        client
            .post(kChat,
                  ask(rest + R"(7,"n":5,"stream":true,"stream_options":{"include_usage":true})"))
            .body;
    EXPECT_TRUE(stream.ends_with("data: [DONE]\n\n"));
    const JsonDocument document = parsed(body);
    const Json& root = document.root();
    ASSERT_EQ(root.find("choices")->items.size(), 5u);
    std::set<std::string> call_ids;
    int tokens = 0;
    for (int i = 0; i < 5; ++i) {
      const std::string choice = "choices." + std::to_string(i) + ".";
      const auto seed = static_cast<std::int64_t>(sample::choice_seed(kSeed, i));
      const JsonDocument single = parsed(client.post(kChat, ask(rest + std::to_string(seed))).body);
      const Json& alone = single.root();
      EXPECT_EQ(at(root, choice + "index"), std::to_string(i));
      EXPECT_EQ(at(root, choice + "logprobs"), at(alone, "choices.0.logprobs"));
      const Joined joined = joined_choice(stream, i);
      EXPECT_EQ(joined.role, "assistant");
      EXPECT_EQ(joined.content, or_empty(root, choice + "message.content"));
      EXPECT_EQ(joined.content, or_empty(alone, "choices.0.message.content"));
      EXPECT_EQ(joined.finish_reason, at(root, choice + "finish_reason"));
      EXPECT_EQ(joined.finish_reason, at(alone, "choices.0.finish_reason"));
      EXPECT_EQ(joined.finish_reason, i == 1 || i == 4 ? "tool_calls" : "stop");
      EXPECT_EQ(joined.tool_calls.empty(), joined.finish_reason == "stop");
      for (std::size_t k = 0; k < joined.logprobs.size(); ++k)
        EXPECT_EQ(joined.logprobs[k], at(root, choice + "logprobs.content." + std::to_string(k)));
      EXPECT_EQ(at(root, choice + "logprobs.content." + std::to_string(joined.logprobs.size())),
                "(absent)");
      const std::string id = at(root, choice + "message.tool_calls.0.id");
      if (id != "(absent)") call_ids.insert(id);
      tokens += std::stoi(at(alone, "usage.completion_tokens"));
      EXPECT_EQ(at(root, "usage.prompt_tokens"), at(alone, "usage.prompt_tokens"));
    }
    EXPECT_EQ(call_ids.size(), 2u);
    EXPECT_EQ(at(root, "usage.completion_tokens"), std::to_string(tokens));
    EXPECT_EQ(joined_choice(stream, -1).usage, at(root, "usage"));
  }
}

TEST(Choices, RequestsDifferInTheirSeedAlone) {
  TestServer server("x<eos>");
  RawClient client(server.port());
  EXPECT_EQ(client.post(kChat, ask(R"("seed":7,"n":3,"cache_salt":"s","max_tokens":5)")).status,
            200);
  const std::vector<Request> seeded = server.engine().requests();
  ASSERT_EQ(seeded.size(), 3u);
  for (std::size_t i = 0; i < seeded.size(); ++i) {
    EXPECT_EQ(seeded[i].sampling.seed, sample::choice_seed(kSeed, static_cast<int>(i)));
    EXPECT_EQ(seeded[i].prompt, seeded[0].prompt);
    EXPECT_EQ(seeded[i].cache_salt, "s");
    EXPECT_EQ(seeded[i].sampling.max_tokens, 5);
  }
  EXPECT_EQ(seeded[0].sampling.seed, kSeed);
  EXPECT_EQ(client.post(kChat, ask(R"("n":128)")).status, 200);
  std::set<std::uint64_t> seeds;
  for (const Request& request : server.engine().requests()) seeds.insert(request.sampling.seed);
  EXPECT_EQ(seeds.size(), 3u + 128u);
}

TEST(Choices, OfEachPromptStandTogether) {
  TestServerOptions options;
  options.engine.script = [](const Request& request) {
    std::vector<TokenId> ids = request.prompt;
    ids.push_back(script_ids(std::to_string(choice_of(request)))[0]);
    ids.push_back(test_model_info().eos_token);
    return ids;
  };
  TestServer server(options);
  RawClient client(server.port());
  const std::string rest =
      R"({"prompt":["first","second"],"max_tokens":50,"n":3,"best_of":3,"seed":7)";
  const std::string body = client.post(kCompletions, rest + "}").body;
  const std::string stream =
      client.post(kCompletions, rest + R"(,"stream":true,"stream_options":{"include_usage":true}})")
          .body;
  for (int i = 0; i < 6; ++i) {
    const std::string text = (i < 3 ? "first" : "second") + std::to_string(i % 3);
    const std::string choice = "choices." + std::to_string(i) + ".";
    EXPECT_EQ(at(body, choice + "index"), std::to_string(i));
    EXPECT_EQ(at(body, choice + "text"), text);
    EXPECT_EQ(at(body, choice + "finish_reason"), "stop");
    EXPECT_EQ(joined_choice(stream, i).text, text);
    EXPECT_EQ(joined_choice(stream, i).finish_reason, "stop");
  }
  EXPECT_EQ(at(body, "choices.6"), "(absent)");
  const int prompts = tokens_in("first") + tokens_in("second");
  EXPECT_EQ(at(body, "usage.prompt_tokens"), std::to_string(prompts));
  EXPECT_EQ(at(body, "usage.completion_tokens"), std::to_string(3 * prompts + 6));
  EXPECT_EQ(joined_choice(stream, -1).usage, at(body, "usage"));
}

TEST(Choices, ChunksCarryTheUsageOfAll) {
  const std::vector<std::string> texts = {"one two<eos>", "three four five six<eos>"};
  TestServer server(answering(texts, 1));
  RawClient client(server.port());
  const std::string options =
      R"("n":2,"seed":7,"stream":true,"stream_options":{"continuous_usage_stats":true})";
  for (const std::string& path : {kChat, kCompletions}) {
    int last = 0;
    for (const std::string& event :
         sse_events(client.post(path, path == kChat ? ask(options) : complete(options)).body)) {
      if (event == "[DONE]") continue;
      EXPECT_GT(std::stoi(at(event, "usage.prompt_tokens")), 0);
      EXPECT_GE(std::stoi(at(event, "usage.completion_tokens")), last);
      last = std::stoi(at(event, "usage.completion_tokens"));
    }
    EXPECT_EQ(last, tokens_in("one two") + tokens_in("three four five six"));
  }
}

TEST(Choices, AnEndIsThatChoicesAlone) {
  TestServerOptions options = endless();
  options.engine.script = [](const Request& request) {
    std::vector<TokenId> ids = script_ids(choice_of(request) == 1 ? "a STOP" : "a");
    ids.resize(200000, ids[0]);
    return ids;
  };
  for (const std::string& path : {kChat, kCompletions}) {
    TestServer server(options);
    RawClient client(server.port());
    const std::string rest = R"("n":3,"seed":7,"stop":"STOP","stream":true,"max_tokens":100000)";
    client.send(post_text(path, path == kChat ? ask(rest) : R"({"prompt":"x",)" + rest + "}"));
    EXPECT_NE(client.read_until(R"("finish_reason":"stop")"), "");
    EXPECT_TRUE(eventually([&] { return server.engine().cancelled() == 1; }));
    EXPECT_EQ(server.engine().stats().running, 2);
    client.close();
    EXPECT_TRUE(eventually([&] { return server.engine().stats().running == 0; }));
    EXPECT_EQ(server.engine().cancelled(), 3);
  }
}

// However the client leaves, and whether its choices run, wait, or some of them each.
TEST(Choices, EndTogetherWhenTheClientLeaves) {
  for (const int max_running : {8, 2, 1}) {
    TestServerOptions options = endless();
    options.engine.max_running = max_running;
    TestServer server(options);
    int expected = 0;
    for (const char* stream : {"true", "false"})
      for (const int leaving : {0, 1, 2})
        for (const std::string& path : {kChat, kCompletions})
          for (const bool paused : {false, true}) {
            const std::string rest = R"("n":4,"stream":)" + std::string(stream);
            const std::string body = path == kChat ? ask(rest) : complete(rest);
            if (paused) server.engine().pause();
            RawClient client(server.port());
            client.send(post_text(path, body));
            EXPECT_TRUE(eventually([&] {
              const EngineStats stats = server.engine().stats();
              return stats.running == (paused ? 0 : std::min(max_running, 4)) &&
                     stats.running + stats.waiting == 4;
            }));
            const std::uint64_t steps = server.engine().stats().steps;
            if (leaving == 0) client.close();
            if (leaving == 1) client.reset();
            if (leaving == 2) client.shutdown_write();
            expected += 4;
            EXPECT_TRUE(eventually([&] { return server.engine().cancelled() == expected; }));
            EXPECT_EQ(server.engine().stats().running + server.engine().stats().waiting, 0);
            if (paused) {
              EXPECT_EQ(server.engine().stats().steps, steps);
              server.engine().resume();
            }
          }
  }
}

TEST(Choices, AreAcceptedOrRefusedTogether) {
  TestServerOptions options = endless();
  options.engine.max_waiting = 5;
  TestServer server(options);
  server.engine().pause();
  RawClient first(server.port());
  first.send(post_text(kChat, ask(R"("n":3)")));
  EXPECT_TRUE(eventually([&] { return server.engine().stats().waiting == 3; }));
  RawClient second(server.port());
  for (const char* stream : {"true", "false"}) {
    const std::string rest = R"("n":3,"stream":)" + std::string(stream);
    const std::string three = R"({"prompt":["a","b","c"],"stream":)" + std::string(stream) + "}";
    for (const RawResponse& response :
         {second.post(kChat, ask(rest)), second.post(kCompletions, complete(rest)),
          second.post(kCompletions, three)}) {
      EXPECT_EQ(response.status, 429);
      EXPECT_EQ(at(response.body, "error.code"), "queue_full");
    }
  }
  EXPECT_EQ(server.engine().requests().size(), 3u);
  second.send(post_text(kChat, ask(R"("n":2)")));
  EXPECT_TRUE(eventually([&] { return server.engine().stats().waiting == 5; }));
}

TEST(Choices, AFailureOfOneEndsTheCall) {
  TestServer server(endless());
  const Status failure{StatusCode::kInternal, "step failed", ""};
  int ended = 0;
  for (const std::string& path : {kChat, kCompletions}) {
    const auto body = [&](const std::string& rest) {
      return path == kChat ? ask(rest) : complete(rest);
    };
    RawClient client(server.port());
    server.engine().fail_next(failure);
    const RawResponse plain = client.post(path, body(R"("n":3)"));
    EXPECT_EQ(plain.status, 500);
    EXPECT_EQ(at(plain.body, "error.message"), "step failed");
    ended += 2;
    EXPECT_TRUE(eventually([&] { return server.engine().cancelled() == ended; }));

    client.send(post_text(path, body(R"("n":3,"stream":true)")));
    EXPECT_NE(client.read_until("data: "), "");
    server.engine().fail_next(failure);
    const std::string stream = client.read_until("data: [DONE]");
    EXPECT_NE(stream.find(R"(data: {"error":{"message":"step failed")"), std::string::npos);
    ended += 2;
    EXPECT_TRUE(eventually([&] { return server.engine().cancelled() == ended; }));
  }
}

TEST(Choices, OfAClientThatDoesNotReadAreGivenUp) {
  TestServerOptions options = endless();
  options.engine.step_time = std::chrono::microseconds(1000);
  options.engine.tokens_per_step = 20;
  options.server.service.stream_buffer_bytes = 200000;
  for (const std::string& path : {kChat, kCompletions}) {
    TestServer server(options);
    RawClient client(server.port());
    const std::string rest = R"("n":4,"stream":true,"ignore_eos":true,)";
    // Log-probabilities make events long, so that the sockets' buffers are soon full.
    client.send(post_text(path, path == kChat ? ask(rest + R"("logprobs":true,"top_logprobs":20)")
                                              : R"({"prompt":"x","max_tokens":100000,)" + rest +
                                                    R"("logprobs":20})"));
    EXPECT_TRUE(eventually([&] { return server.engine().cancelled() == 4; }));
    EXPECT_FALSE(client.read_response().complete);
  }
}

}  // namespace
}  // namespace nibble::api::testing
