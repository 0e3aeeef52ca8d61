// What a client reads, over real sockets, for ids a script decides.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "api/testing/answers.h"
#include "api/testing/raw_client.h"
#include "api/testing/test_server.h"

namespace nibble::api::testing {
namespace {

const std::string kChat = "/v1/chat/completions";
const std::string kCompletions = "/v1/completions";
const std::string kBashTool =
    R"("tools":[{"type":"function","function":{"name":"bash","parameters":{"type":"object","properties":{"command":{"type":"string"},"tries":{"type":"integer"}}}}}])";

std::string ask(const std::string& rest = "") {
  return R"({"messages":[{"role":"user","content":"hi"}])" + (rest.empty() ? "" : "," + rest) + "}";
}

TestServerOptions answering(const std::string& text, int tokens_per_step) {
  TestServerOptions options;
  options.engine.script = [ids = script_ids(text)](const Request&) { return ids; };
  options.engine.tokens_per_step = tokens_per_step;
  return options;
}

// The same request streamed and not: the same answer, however the engine's steps cut it. Returns the whole one's message.
struct BothWays {
  std::string message;  // JSON
  std::string finish_reason;
  std::string usage;
  std::vector<std::string> logprobs;
};

BothWays both_ways(const std::string& text, const std::string& rest) {
  BothWays first;
  for (const int tokens_per_step : {1, 2, 5, 1000}) {
    TestServer server(answering(text, tokens_per_step));
    RawClient client(server.port());
    const RawResponse whole = client.post(kChat, ask(rest));
    EXPECT_EQ(whole.status, 200) << whole.body;
    const std::string more = rest.empty() ? "" : rest + ",";
    const RawResponse streamed =
        client.post(kChat, ask(more + R"("stream":true,"stream_options":{"include_usage":true})"));
    EXPECT_EQ(streamed.status, 200) << streamed.body;
    const JsonDocument document = parsed(whole.body);
    const Json& root = document.root();
    const Joined joined = join_stream(streamed.body);
    EXPECT_TRUE(joined.done);
    EXPECT_EQ(joined.role, "assistant");
    const auto or_empty = [&](const std::string& path) {
      const std::string value = at(root, path);
      return value == "(absent)" || value == "null" ? "" : value;
    };
    EXPECT_EQ(joined.content, or_empty("choices.0.message.content"));
    EXPECT_EQ(joined.reasoning, or_empty("choices.0.message.reasoning_content"));
    EXPECT_EQ(joined.finish_reason, at(root, "choices.0.finish_reason"));
    EXPECT_EQ(joined.usage, at(root, "usage"));
    std::string calls;
    for (int i = 0; at(root, "choices.0.message.tool_calls." + std::to_string(i)) != "(absent)";
         ++i) {
      const std::string call = "choices.0.message.tool_calls." + std::to_string(i) + ".";
      calls += std::to_string(i) + " " + at(root, call + "function.name") + " " +
               at(root, call + "function.arguments") + "\n";
    }
    EXPECT_EQ(joined.tool_calls, calls);
    std::vector<std::string> logprobs;
    for (int i = 0; at(root, "choices.0.logprobs.content." + std::to_string(i)) != "(absent)"; ++i)
      logprobs.push_back(at(root, "choices.0.logprobs.content." + std::to_string(i)));
    EXPECT_EQ(joined.logprobs, logprobs);

    BothWays now{at(root, "choices.0.message"), joined.finish_reason, joined.usage, logprobs};
    // Ids of calls differ between answers and nothing else may.
    for (std::size_t id = now.message.find("call_"); id != std::string::npos;
         id = now.message.find("call_", id))
      now.message.replace(id, now.message.find('"', id) - id, "ID");
    if (tokens_per_step == 1) first = now;
    EXPECT_EQ(now.message, first.message);
    EXPECT_EQ(now.finish_reason, first.finish_reason);
    EXPECT_EQ(now.usage, first.usage);
    EXPECT_EQ(now.logprobs, first.logprobs);
  }
  return first;
}

int tokens_in(const std::string& text) {
  return static_cast<int>(script_ids(text).size());
}

// Each chunk says how many tokens there are so far: the last one with a choice as many as the whole answer.
TEST(ChatAnswers, ChunksCarryUsageWhenAsked) {
  const std::string text = "one two three four five";
  for (const int tokens_per_step : {1, 2, 1000}) {
    TestServer server(answering(text + "<eos>", tokens_per_step));
    RawClient client(server.port());
    for (const std::string& path : {kChat, kCompletions}) {
      const bool chat = path == kChat;
      const std::string options =
          R"("max_tokens":100,"stream":true,"stream_options":{"continuous_usage_stats":true})";
      const RawResponse streamed =
          client.post(path, chat ? ask(options) : R"({"prompt":[5,6,7],)" + options + "}");
      ASSERT_EQ(streamed.status, 200) << streamed.body;
      int last = 0;
      for (const std::string& event : sse_events(streamed.body)) {
        if (event == "[DONE]") continue;
        const int now = std::stoi(at(event, "usage.completion_tokens"));
        EXPECT_GE(now, last);
        last = now;
      }
      EXPECT_EQ(last, tokens_in(text));
    }
  }
}

TEST(ChatAnswers, CharactersAreNeverSplit) {
  const std::string text = "👩‍👩‍👧 naïve 深度 \"quoted\" \\ \n\t end";
  const BothWays answer = both_ways(text + "<eos>", "");
  EXPECT_EQ(at(answer.message, "content"), text);
  EXPECT_EQ(at(answer.message, "reasoning_content"), "(absent)");
  EXPECT_EQ(answer.finish_reason, "stop");
  EXPECT_EQ(at(answer.usage, "completion_tokens"), std::to_string(tokens_in(text)));
  EXPECT_EQ(at(answer.usage, "prompt_tokens_details.cached_tokens"), "0");
  EXPECT_EQ(at(answer.usage, "completion_tokens_details.reasoning_tokens"), "0");
}

TEST(ChatAnswers, ACharacterCutByTheBudgetIsReplacedOnce) {
  const std::vector<TokenId> ids = script_ids("a深");
  ASSERT_GE(ids.size(), 3u) << "tiny's tokenizer has this character whole: pick another";
  const BothWays answer = both_ways("a深", "\"max_tokens\":" + std::to_string(ids.size() - 1));
  EXPECT_EQ(at(answer.message, "content"), "a\uFFFD");
  EXPECT_EQ(answer.finish_reason, "length");
}

TEST(ChatAnswers, EmptyAnswer) {
  const BothWays answer = both_ways("<eos>", "");
  EXPECT_EQ(at(answer.message, "content"), "");
  EXPECT_EQ(answer.finish_reason, "stop");
  EXPECT_EQ(at(answer.usage, "completion_tokens"), "0");
}

TEST(ChatAnswers, StopStrings) {
  const std::string text = "one two STOP three";
  const BothWays found = both_ways(text + "<eos>", R"("stop":["zzz","STOP"])");
  EXPECT_EQ(at(found.message, "content"), "one two ");
  EXPECT_EQ(found.finish_reason, "stop");
  EXPECT_LT(std::stoi(at(found.usage, "completion_tokens")), tokens_in(text));
  const BothWays partial = both_ways("ends with STO<eos>", R"("stop":"STOP")");
  EXPECT_EQ(at(partial.message, "content"), "ends with STO");
  const BothWays whole = both_ways(text + "<eos>", R"("stop":"never")");
  EXPECT_EQ(at(whole.message, "content"), text);
}

TEST(ChatAnswers, AFoundStopStringEndsTheRequestInTheEngine) {
  TestServerOptions options = answering("", 1);
  options.engine.script = [](const Request&) {
    std::vector<TokenId> ids = script_ids("a STOP");
    ids.resize(4000, ids[0]);
    return ids;
  };
  options.engine.step_time = std::chrono::milliseconds(1);
  TestServer server(options);
  RawClient client(server.port());
  EXPECT_EQ(at(client.post(kChat, ask(R"("stop":"STOP")")).body, "choices.0.message.content"),
            "a ");
  while (server.engine().cancelled() == 0)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_NE(
      client.get("/metrics").body.find("nibble:requests_cancelled_total{model_name=\"tiny\"} 0\n"),
      std::string::npos);
}

TEST(ChatAnswers, ReasoningAndContent) {
  const BothWays answer = both_ways("I ponder STOP.</think>So be it.<eos>",
                                    R"("thinking":{"type":"enabled"},"stop":"STOP")");
  EXPECT_EQ(at(answer.message, "reasoning_content"),
            "I ponder STOP.");  // stop strings look at content
  EXPECT_EQ(at(answer.message, "content"), "So be it.");
  EXPECT_EQ(at(answer.usage, "completion_tokens_details.reasoning_tokens"),
            std::to_string(tokens_in("I ponder STOP.")));
  const BothWays cut =
      both_ways("I ponder long</think>x", R"("thinking":{"type":"enabled"},"max_tokens":3)");
  EXPECT_EQ(cut.finish_reason, "length");
  EXPECT_EQ(at(cut.message, "content"), "");
  EXPECT_NE(at(cut.message, "reasoning_content"), "");
}

TEST(ChatAnswers, ThinkingReachesThePrompt) {
  TestServer server("x<eos>");
  RawClient client(server.port());
  const TokenId open = tiny_tokenizer().id_of("<think>").value();
  const TokenId closed = tiny_tokenizer().id_of("</think>").value();
  const std::pair<const char*, TokenId> kCases[] = {
      {"", closed},
      {R"("thinking":{"type":"enabled"})", open},
      {R"("thinking":{"type":"disabled"})", closed},
      {R"("chat_template_kwargs":{"thinking":true})", open},
      {R"("chat_template_kwargs":{"enable_thinking":true})", open},
      {R"("reasoning_effort":"high")", open},
      {R"("reasoning_effort":"none")", closed},
      {R"("reasoning_effort":"max")", open},
  };
  for (const auto& [rest, last] : kCases) {
    EXPECT_EQ(client.post(kChat, ask(rest)).status, 200) << rest;
    EXPECT_EQ(server.engine().requests().back().prompt.back(), last) << rest;
  }
  for (const char* rest :
       {R"("reasoning_effort":"huge")",
        R"("reasoning_effort":"none","thinking":{"type":"enabled"})",
        R"("thinking":{"type":"enabled"},"chat_template_kwargs":{"thinking":false})"}) {
    const RawResponse refused = client.post(kChat, ask(rest));
    EXPECT_EQ(refused.status, 400) << rest;
  }
  EXPECT_NE(
      at(client.post(kChat, ask(R"("reasoning_effort":"huge")")).body, "error.message").find("max"),
      std::string::npos);
}

const std::string kCall =
    "Let me look.\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"bash\">\n"
    "<｜DSML｜parameter name=\"command\" string=\"true\">make 2>&1 | grep \"<err>\" && echo "
    "'a&amp;b' \\</｜DSML｜parameter>\n"
    "<｜DSML｜parameter name=\"tries\" string=\"false\">3</｜DSML｜parameter>\n</｜DSML｜invoke>\n";
const std::string kSecond =
    "<｜DSML｜invoke name=\"bash\">\n<｜DSML｜parameter name=\"command\" "
    "string=\"true\">ls</｜DSML｜parameter>\n</｜DSML｜invoke>\n";
const std::string kCallEnd = "</｜DSML｜tool_calls>";

TEST(ChatAnswers, ToolCalls) {
  const BothWays answer = both_ways(kCall + kSecond + kCallEnd + "<eos>", kBashTool);
  EXPECT_EQ(at(answer.message, "content"), "Let me look.");
  EXPECT_EQ(answer.finish_reason, "tool_calls");
  EXPECT_EQ(at(answer.message, "tool_calls.0.type"), "function");
  EXPECT_EQ(at(answer.message, "tool_calls.0.function.name"), "bash");
  const std::string arguments = at(answer.message, "tool_calls.0.function.arguments");
  EXPECT_EQ(at(arguments, "command"), "make 2>&1 | grep \"<err>\" && echo 'a&amp;b' \\");
  EXPECT_EQ(at(arguments, "tries"), "3");
  EXPECT_EQ(at(answer.message, "tool_calls.1.function.arguments"), R"({"command": "ls"})");
}

TEST(ChatAnswers, MarkersInUnusualPlacesLoseNoText) {
  const std::string on = R"("thinking":{"type":"enabled"})";
  const BothWays unasked = both_ways("<think>a</think>b<eos>", "");
  EXPECT_EQ(at(unasked.message, "reasoning_content"), "a");
  EXPECT_EQ(at(unasked.message, "content"), "b");
  const BothWays twice = both_ways("a</think>b</think>c<eos>", on);
  EXPECT_EQ(at(twice.message, "reasoning_content") + at(twice.message, "content"), "abc");
  const BothWays unended = both_ways("only thoughts<eos>", on);
  EXPECT_EQ(at(unended.message, "reasoning_content"), "only thoughts");
  EXPECT_EQ(unended.finish_reason, "stop");
  const BothWays inside =
      both_ways("hm" + kCall + kCallEnd + "</think>done<eos>", on + "," + kBashTool);
  EXPECT_EQ(at(inside.message, "tool_calls.0.function.name"), "bash");
  EXPECT_EQ(inside.finish_reason, "tool_calls");
}

TEST(ChatAnswers, OneToolCallOnly) {
  const BothWays answer = both_ways(kCall + kSecond + kCallEnd + "<eos>",
                                    kBashTool + R"(,"parallel_tool_calls":false)");
  EXPECT_EQ(at(answer.message, "tool_calls.0.function.name"), "bash");
  EXPECT_EQ(at(answer.message, "tool_calls.1"), "(absent)");
  EXPECT_EQ(answer.finish_reason, "tool_calls");
}

TEST(ChatAnswers, ABareCallHasNullContent) {
  const BothWays answer =
      both_ways("<｜DSML｜tool_calls>\n" + kSecond + kCallEnd + "<eos>", kBashTool);
  EXPECT_EQ(at(answer.message, "content"), "null");
  EXPECT_EQ(answer.finish_reason, "tool_calls");
}

TEST(ChatAnswers, WithoutToolsMarkupIsText) {
  for (const std::string& rest : {std::string(), kBashTool + R"(,"tool_choice":"none")"}) {
    const BothWays answer = both_ways(kCall + kCallEnd + "<eos>", rest);
    EXPECT_NE(at(answer.message, "content").find("invoke name=\"bash\""), std::string::npos);
    EXPECT_EQ(at(answer.message, "tool_calls"), "(absent)");
    EXPECT_EQ(answer.finish_reason, "stop");
  }
}

TEST(ChatAnswers, Logprobs) {
  const std::string text = "naïve 深";
  const BothWays answer = both_ways(text + "<eos>", R"("logprobs":true,"top_logprobs":2)");
  const std::vector<TokenId> ids = script_ids(text);
  ASSERT_EQ(answer.logprobs.size(), ids.size());
  std::string bytes;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const JsonDocument document = parsed(answer.logprobs[i]);
    const Json& entry = document.root();
    EXPECT_NEAR(std::stof(at(entry, "logprob")), ScriptedEngine::logprob_of(ids[i]), 1e-6f);
    for (const Json& byte : entry.find("bytes")->items)
      bytes += static_cast<char>(byte.integer().value());
    EXPECT_EQ(entry.find("top_logprobs")->items.size(), 2u);
    EXPECT_EQ(at(entry, "top_logprobs.0.token"), at(entry, "token"));
  }
  EXPECT_EQ(bytes, text);
  const BothWays none = both_ways(text + "<eos>", "");
  EXPECT_TRUE(none.logprobs.empty());
  const BothWays as_ids =
      both_ways("a<eos>", R"("logprobs":true,"return_tokens_as_token_ids":true)");
  EXPECT_EQ(at(as_ids.logprobs[0], "token"), "token_id:" + std::to_string(script_ids("a")[0]));
  EXPECT_EQ(at(as_ids.logprobs[0], "top_logprobs"), "[]");
}

TEST(ChatAnswers, SamplingReachesTheEngine) {
  TestServer server("x<eos>");
  RawClient client(server.port());
  EXPECT_EQ(client.post(kChat, ask()).status, 200);
  EXPECT_EQ(
      client
          .post(kChat,
                ask(R"("temperature":0.5,"top_p":0.25,"seed":7,"max_tokens":3,"ignore_eos":true)"))
          .status,
      200);
  const std::vector<Request> requests = server.engine().requests();
  EXPECT_EQ(requests[0].sampling.temperature, 0.0f);
  EXPECT_EQ(requests[0].sampling.max_tokens, 4096 - static_cast<int>(requests[0].prompt.size()));
  EXPECT_EQ(requests[1].sampling.temperature, 0.5f);
  EXPECT_EQ(requests[1].sampling.top_p, 0.25f);
  EXPECT_EQ(requests[1].sampling.seed, 7u);
  EXPECT_EQ(requests[1].sampling.max_tokens, 3);
  EXPECT_TRUE(requests[1].sampling.ignore_eos);
  EXPECT_NE(requests[0].sampling.seed, requests[1].sampling.seed);
  const std::string body = client.post(kChat, ask()).body;
  EXPECT_EQ(at(body, "object"), "chat.completion");
  EXPECT_EQ(at(body, "model"), "tiny");
  EXPECT_EQ(at(body, "system_fingerprint"), "fp_test");
  EXPECT_TRUE(at(body, "id").starts_with("chatcmpl-"));
}

TEST(ChatAnswers, WithoutEncoderChatIsRefusedAndCompletionsWork) {
  TestServerOptions options = answering("x<eos>", 1);
  options.with_encoder = false;
  TestServer server(options);
  RawClient client(server.port());
  const RawResponse chat = client.post(kChat, ask());
  EXPECT_EQ(chat.status, 400);
  EXPECT_NE(at(chat.body, "error.message").find("no encoder in this test"), std::string::npos);
  EXPECT_EQ(client.post(kCompletions, R"({"prompt":"x"})").status, 200);
}

// --- completions -------------------------------------------------------------------------------------------------------

Joined stream_of(RawClient& client, const std::string& body) {
  return join_stream(
      client.post(kCompletions, body.substr(0, body.size() - 1) + ",\"stream\":true}").body);
}

TEST(CompletionAnswers, TextStreamedAndNot) {
  const std::string text = " naïve 深度 👩‍👩‍👧";
  for (const int tokens_per_step : {1, 3, 1000}) {
    TestServer server(answering(text + "<eos>", tokens_per_step));
    RawClient client(server.port());
    const std::string request = R"({"prompt":"Say","max_tokens":200})";
    const std::string whole = client.post(kCompletions, request).body;
    EXPECT_EQ(at(whole, "choices.0.text"), text);
    EXPECT_EQ(at(whole, "choices.0.finish_reason"), "stop");
    EXPECT_EQ(at(whole, "choices.0.logprobs"), "null");
    EXPECT_EQ(at(whole, "object"), "text_completion");
    EXPECT_EQ(at(whole, "usage.prompt_tokens"), std::to_string(tokens_in("Say")));
    EXPECT_EQ(at(whole, "usage.completion_tokens"), std::to_string(tokens_in(text)));
    const Joined joined = stream_of(client, request);
    EXPECT_EQ(joined.text, text);
    EXPECT_EQ(joined.finish_reason, "stop");
    EXPECT_TRUE(joined.done);
    EXPECT_EQ(at(client.post(kCompletions, R"({"prompt":"Say","stop":"深","max_tokens":200})").body,
                 "choices.0.text"),
              " naïve ");
    EXPECT_EQ(at(client.post(kCompletions, R"({"prompt":"Say"})").body, "choices.0.finish_reason"),
              tokens_in(text) >= 16 ? "length" : "stop");
  }
}

TEST(CompletionAnswers, PromptsAreTextWithControlTokensOrIds) {
  TestServer server("x<eos>");
  RawClient client(server.port());
  const auto prompt_of = [&](const std::string& body) {
    EXPECT_EQ(client.post(kCompletions, body).status, 200) << body;
    return server.engine().requests().back().prompt;
  };
  EXPECT_EQ(prompt_of(R"({"prompt":"a<｜User｜>b"})"),
            tiny_tokenizer().encode_with_control("a<｜User｜>b"));
  EXPECT_EQ(prompt_of(R"({"prompt":[5,6,7]})"), (std::vector<TokenId>{5, 6, 7}));
  const TokenId bos = test_model_info().bos_token;
  EXPECT_EQ(prompt_of(R"({"prompt":"a","add_special_tokens":true})"),
            (std::vector<TokenId>{bos, script_ids("a")[0]}));
  EXPECT_EQ(prompt_of(R"({"prompt":"<｜begin▁of▁sentence｜>a","add_special_tokens":true})"),
            (std::vector<TokenId>{bos, script_ids("a")[0]}));
  EXPECT_EQ(client.post(kCompletions, R"({"prompt":""})").status, 400);
  const RawResponse outside = client.post(kCompletions, R"({"prompt":[1,99999999]})");
  EXPECT_EQ(outside.status, 400);
  EXPECT_EQ(at(outside.body, "error.param"), "prompt[1]");
}

TEST(CompletionAnswers, EchoAndLogprobs) {
  const std::string prompt = "One naïve 深";
  const std::string text = "度 two";
  for (const int tokens_per_step : {1, 1000}) {
    TestServer server(answering(text + "<eos>", tokens_per_step));
    RawClient client(server.port());
    const std::string body =
        client
            .post(kCompletions,
                  R"({"prompt":"One naïve 深","echo":true,"logprobs":2,"max_tokens":50})")
            .body;
    const JsonDocument document = parsed(body);
    const Json& choice = document.root().find("choices")->items[0];
    EXPECT_EQ(choice.find("text")->string, prompt + text);
    const Json& lists = *choice.find("logprobs");
    const std::vector<TokenId> ids = [&] {
      std::vector<TokenId> all = script_ids(prompt);
      for (const TokenId id : script_ids(text)) all.push_back(id);
      return all;
    }();
    for (const char* list : {"tokens", "token_logprobs", "top_logprobs", "text_offset"})
      ASSERT_EQ(lists.find(list)->items.size(), ids.size()) << list;
    EXPECT_EQ(lists.find("token_logprobs")->items[0].raw, "null");
    EXPECT_EQ(lists.find("top_logprobs")->items[0].raw, "null");
    // Offsets count the characters that are whole before the token.
    const std::string all = prompt + text;
    std::size_t bytes_before = 0;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      std::int64_t whole = 0;
      for (std::size_t end = 1; end <= bytes_before; ++end)
        whole += end == all.size() || (static_cast<unsigned char>(all[end]) & 0xC0) != 0x80;
      EXPECT_EQ(lists.find("text_offset")->items[i].integer(), whole) << i;
      bytes_before += tiny_tokenizer().token_bytes(ids[i]).size();
    }
    EXPECT_EQ(bytes_before, all.size());
    for (std::size_t i = 1; i < ids.size(); ++i) {
      EXPECT_NEAR(*lists.find("token_logprobs")->items[i].number(),
                  ScriptedEngine::logprob_of(ids[i]), 1e-6);
      const Json& top = lists.find("top_logprobs")->items[i];
      EXPECT_GE(top.items.size(), 2u);
      EXPECT_NE(top.find(lists.find("tokens")->items[i].string), nullptr);
    }
    const Joined joined =
        stream_of(client, R"({"prompt":"One naïve 深","echo":true,"logprobs":2,"max_tokens":50})");
    EXPECT_EQ(joined.text, prompt + text);
  }
}

TEST(CompletionAnswers, ScoringAPromptWithoutGenerating) {
  TestServer server("never shown<eos>");
  RawClient client(server.port());
  const std::string body =
      client
          .post(
              kCompletions,
              R"({"prompt":[5,6,7],"echo":true,"logprobs":1,"max_tokens":0,"return_tokens_as_token_ids":true})")
          .body;
  const JsonDocument document = parsed(body);
  const Json& choice = document.root().find("choices")->items[0];
  EXPECT_EQ(choice.find("text")->string, tiny_tokenizer().decode(std::vector<TokenId>{5, 6, 7}));
  EXPECT_EQ(choice.find("finish_reason")->string, "length");
  EXPECT_EQ(at(choice, "logprobs.tokens"), R"(["token_id:5","token_id:6","token_id:7"])");
  EXPECT_EQ(at(choice, "logprobs.token_logprobs"), "[null,-0.006,-0.007]");
  EXPECT_EQ(at(choice, "logprobs.top_logprobs.1"), R"({"token_id:6":-0.006})");
  EXPECT_EQ(at(body, "usage.completion_tokens"), "0");
  const std::string plain =
      client.post(kCompletions, R"({"prompt":"Hi there","echo":true,"max_tokens":0})").body;
  EXPECT_EQ(at(plain, "choices.0.text"), "Hi there");
  EXPECT_EQ(
      at(client.post(kCompletions, R"({"prompt":"Hi","max_tokens":0})").body, "choices.0.text"),
      "");
}

TEST(CompletionAnswers, HalfCharactersHaveNamesOfTheirOwn) {
  const std::vector<TokenId> ids = script_ids("深");
  ASSERT_GE(ids.size(), 2u) << "tiny's tokenizer has this character whole: pick another";
  TestServer server("深<eos>");
  RawClient client(server.port());
  const std::string body = client.post(kCompletions, R"({"prompt":"x","logprobs":0})").body;
  EXPECT_EQ(at(body, "choices.0.text"), "深");
  EXPECT_EQ(at(body, "choices.0.logprobs.tokens.0").substr(0, 8), "bytes:\\x");
}

TEST(CompletionAnswers, SeveralPrompts) {
  TestServerOptions options;
  options.engine.script = [](const Request& request) {
    std::vector<TokenId> ids = request.prompt;
    ids.push_back(test_model_info().eos_token);
    return ids;
  };
  TestServer server(options);
  RawClient client(server.port());
  const std::string body =
      client.post(kCompletions, R"({"prompt":["first","second","third"],"max_tokens":50})").body;
  EXPECT_EQ(at(body, "choices.0.text"), "first");
  EXPECT_EQ(at(body, "choices.2.text"), "third");
  EXPECT_EQ(at(body, "choices.2.index"), "2");
  const std::string stream =
      client.post(kCompletions, R"({"prompt":["first","second"],"max_tokens":50,"stream":true})")
          .body;
  std::string texts[2];
  for (const std::string& event : sse_events(stream))
    if (event != "[DONE]")
      texts[std::stoi(at(event, "choices.0.index"))] += at(event, "choices.0.text");
  EXPECT_EQ(texts[0], "first");
  EXPECT_EQ(texts[1], "second");
}

TEST(CompletionAnswers, IgnoreEos) {
  TestServer server("a<eos>");
  RawClient client(server.port());
  const std::string body =
      client.post(kCompletions, R"({"prompt":"x","ignore_eos":true,"logprobs":0})").body;
  EXPECT_EQ(at(body, "choices.0.text"), "a");  // special tokens are no text
  EXPECT_EQ(at(body, "choices.0.logprobs.tokens.1"), "<｜end▁of▁sentence｜>");
  EXPECT_EQ(at(body, "choices.0.finish_reason"), "length");
}

TEST(TokenRoutes, TokenizeAndBack) {
  TestServer server("x<eos>");
  RawClient client(server.port());
  const std::string text =
      client.post("/tokenize", R"({"model":"tiny","prompt":"Hello 深","return_token_strs":true})")
          .body;
  const std::vector<TokenId> ids = script_ids("Hello 深");
  EXPECT_EQ(at(text, "count"), std::to_string(ids.size()));
  EXPECT_EQ(at(text, "max_model_len"), "4096");
  const std::string tokens = at(text, "tokens");
  EXPECT_EQ(at(client.post("/detokenize", "{\"tokens\":" + tokens + "}").body, "prompt"),
            "Hello 深");
  const std::string chat =
      client.post("/tokenize", R"({"messages":[{"role":"user","content":"hi"}]})").body;
  EXPECT_EQ(client.post(kChat, ask()).status, 200);
  EXPECT_EQ(at(chat, "count"), std::to_string(server.engine().requests().back().prompt.size()));
  EXPECT_EQ(client.post("/tokenize", R"({"prompt":"x","messages":[]})").status, 400);
  EXPECT_EQ(client.post("/tokenize", "{}").status, 400);
  EXPECT_EQ(client.post("/tokenize", R"({"model":"other","prompt":"x"})").status, 404);
  EXPECT_EQ(client.post("/detokenize", R"({"tokens":[-1]})").status, 400);
  EXPECT_EQ(client.post("/detokenize", R"({"tokens":[99999999]})").status, 400);
  EXPECT_EQ(client.post("/detokenize", R"({"tokens":"x"})").status, 400);
}

}  // namespace
}  // namespace nibble::api::testing
