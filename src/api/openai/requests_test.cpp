#include <gtest/gtest.h>

#include "api/errors.h"
#include "api/openai/chat_request.h"
#include "api/openai/completion_request.h"

namespace nibble::api::openai {
namespace {

const GenerationDefaults kDefaults = [] {
  GenerationDefaults defaults;
  defaults.sampling.temperature = 0.6f;
  defaults.sampling.top_p = 0.9f;
  return defaults;
}();

JsonDocument parse(const std::string& body) {
  Result<JsonDocument> document = JsonDocument::parse(body);
  EXPECT_TRUE(document.ok()) << body;
  return std::move(document).value();
}

// A chat body: `rest` are members that follow a plain message.
std::string chat(const std::string& rest) {
  return R"({"model":"m","messages":[{"role":"user","content":"hi"}])" +
         (rest.empty() ? "" : "," + rest) + "}";
}
std::string completion(const std::string& rest) {
  return R"({"prompt":"hi")" + (rest.empty() ? "" : "," + rest) + "}";
}

ChatBody read_chat(const std::string& body) {
  const JsonDocument document = parse(body);
  return read_chat_body(document.root(), kDefaults);
}
CompletionBody read_completion(const std::string& body) {
  const JsonDocument document = parse(body);
  return read_completion_body(document.root(), kDefaults);
}

// "" when accepted, else the error's param.
template <typename Read>
std::string refused(Read read, const std::string& body, std::string* message = nullptr) {
  try {
    (void)read(body);
    return "";
  } catch (const RequestError& error) {
    EXPECT_EQ(error.error().http_status, 400) << body;
    EXPECT_FALSE(error.error().message.empty());
    if (message) *message = error.error().message;
    return error.error().param.empty() ? "(body)" : error.error().param;
  }
}

TEST(ChatRequest, Defaults) {
  const ChatBody body = read_chat(chat(""));
  EXPECT_EQ(body.options.model, "m");
  EXPECT_EQ(body.options.sampling.temperature, 0.6f);
  EXPECT_EQ(body.options.sampling.top_p, 0.9f);
  EXPECT_EQ(body.options.sampling.logprobs, -1);
  EXPECT_EQ(body.options.n, 1);
  EXPECT_FALSE(body.options.stream);
  EXPECT_EQ(body.max_tokens, -1);
  ASSERT_EQ(body.chat.messages.size(), 1u);
  EXPECT_EQ(body.chat.messages[0].content[0].text, "hi");
  EXPECT_NE(read_chat(chat("")).options.sampling.seed, body.options.sampling.seed);  // drawn anew
}

TEST(ChatRequest, EveryField) {
  const ChatBody body = read_chat(chat(
      R"("temperature":0,"top_p":0.5,"seed":-7,"stop":["a","b"],"n":3,"max_completion_tokens":9,"logprobs":true,
         "top_logprobs":20,"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true},
         "parallel_tool_calls":false,
         "tools":[{"type":"function","function":{"name":"f","parameters":{"z":1.0,"a":1e2}}}],"tool_choice":"auto",
         "reasoning_effort":"high","ignore_eos":true,"return_tokens_as_token_ids":true)"));
  EXPECT_EQ(body.options.sampling.temperature, 0.0f);
  EXPECT_EQ(body.options.sampling.seed, static_cast<std::uint64_t>(-7));
  EXPECT_EQ(body.options.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(body.max_tokens, 9);
  EXPECT_EQ(body.options.sampling.logprobs, 20);
  EXPECT_TRUE(body.options.stream && body.options.include_usage && body.one_tool_call);
  EXPECT_TRUE(body.options.usage_in_chunks);
  EXPECT_EQ(body.options.n, 3);
  EXPECT_TRUE(body.options.sampling.ignore_eos && body.options.tokens_as_ids);
  ASSERT_EQ(body.chat.tools.size(), 1u);
  EXPECT_EQ(body.chat.tools[0].function_json, R"({"name":"f","parameters":{"z":1.0,"a":1e2}})");
  EXPECT_EQ(body.switches.reasoning_effort, "high");
}

TEST(ChatRequest, SamplingFields) {
  const auto read = [](const char* rest) { return read_chat(chat(rest)).options.sampling; };
  const SamplingParams all = read(
      R"("presence_penalty":-2,"frequency_penalty":0.5,"repetition_penalty":1.25,"top_k":40,"min_p":0.125,
         "logit_bias":{"7":-100,"3":2.5,"7":1})");
  EXPECT_EQ(all.presence_penalty, -2.0f);
  EXPECT_EQ(all.frequency_penalty, 0.5f);
  EXPECT_EQ(all.repetition_penalty, 1.25f);
  EXPECT_EQ(all.top_k, 40);
  EXPECT_EQ(all.min_p, 0.125f);
  EXPECT_EQ(all.logit_bias, (std::vector<std::pair<TokenId, float>>{{3, 2.5f}, {7, 1.0f}}));
  EXPECT_EQ(read(R"("top_k":-1)").top_k, 0);
  const SamplingParams none = read("");
  EXPECT_TRUE(none.top_k == 0 && none.min_p == 0.0f && none.repetition_penalty == 1.0f &&
              none.presence_penalty == 0.0f && none.frequency_penalty == 0.0f &&
              none.logit_bias.empty());
}

TEST(ChatRequest, SamplingDefaultsAreTheCheckpoints) {
  GenerationDefaults defaults;
  defaults.sampling.top_k = 20;
  defaults.sampling.min_p = 0.05f;
  defaults.sampling.repetition_penalty = 1.1f;
  const auto read = [&](const char* rest) {
    const JsonDocument document = parse(chat(rest));
    return read_chat_body(document.root(), defaults).options.sampling;
  };
  EXPECT_EQ(read("").top_k, 20);
  EXPECT_EQ(read("").min_p, 0.05f);
  EXPECT_EQ(read("").repetition_penalty, 1.1f);
  EXPECT_EQ(read(R"("top_k":0)").top_k, 0);
  EXPECT_EQ(read(R"("min_p":0)").min_p, 0.0f);
  EXPECT_EQ(read(R"("repetition_penalty":1)").repetition_penalty, 1.0f);
}

TEST(ChatRequest, ToolChoiceNoneHidesTheTools) {
  const std::string tools = R"("tools":[{"type":"function","function":{"name":"f"}}])";
  EXPECT_EQ(read_chat(chat(tools)).chat.tools.size(), 1u);
  EXPECT_TRUE(read_chat(chat(tools + R"(,"tool_choice":"none")")).chat.tools.empty());
}

TEST(ChatRequest, ThinkingSpellings) {
  EXPECT_EQ(read_chat(chat(R"("thinking":{"type":"enabled"})")).switches.thinking, true);
  EXPECT_EQ(read_chat(chat(R"("thinking":{"type":"disabled"})")).switches.thinking, false);
  EXPECT_EQ(read_chat(chat(R"("chat_template_kwargs":{"thinking":true})")).switches.kwargs_thinking,
            true);
  EXPECT_EQ(read_chat(chat(R"("chat_template_kwargs":{"enable_thinking":false})"))
                .switches.kwargs_thinking,
            false);
  EXPECT_EQ(read_chat(chat(R"("chat_template_kwargs":{"reasoning_effort":"max"})"))
                .switches.kwargs_reasoning_effort,
            "max");
}

TEST(ChatRequest, HistoryOfToolCalls) {
  const ChatBody body = read_chat(R"({"messages":[
      {"role":"system","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
      {"role":"user","content":"q","name":"ann"},
      {"role":"assistant","content":null,"reasoning_content":"","refusal":null,"annotations":[],"audio":null,
       "function_call":null,"tool_calls":[
         {"id":"1","type":"function","index":0,"function":{"name":"f","arguments":"{\"x\": 1.0}"}},
         {"id":"2","type":"function","function":{"name":"g","arguments":{"y":[1, 2]}}},
         {"id":"3","type":"function","function":{"name":"h","arguments":""}},
         {"id":"4","type":"function","function":{"name":"i","arguments":null}}]},
      {"role":"tool","tool_call_id":"1","content":[{"type":"image_url","image_url":{}},{"type":"text","text":"r"}]}]})");
  const auto& calls = body.chat.messages[2].tool_calls;
  ASSERT_EQ(calls.size(), 4u);
  EXPECT_EQ(calls[0].arguments, "{\"x\": 1.0}");
  EXPECT_EQ(calls[1].arguments, "{\"y\":[1, 2]}");
  EXPECT_EQ(calls[2].arguments, "");
  EXPECT_EQ(calls[3].arguments, "");
  EXPECT_EQ(body.chat.messages[3].tool_call_id, "1");
  EXPECT_EQ(body.chat.messages[3].content[0].type, "image_url");
  EXPECT_EQ(body.chat.messages[0].content.size(), 2u);
}

TEST(ChatRequest, AcceptsWhatCannotChangeTheAnswer) {
  const char* kAccepted[] = {
      R"("user":"u","metadata":{"a":"b"},"store":true,"service_tier":"auto","safety_identifier":"x","prompt_cache_key":"k")",
      R"("frequency_penalty":0,"presence_penalty":0.0,"logit_bias":{},"n":1,"best_of":1,"top_k":-1,"min_p":0)",
      R"("frequency_penalty":null,"logit_bias":null,"response_format":null,"tools":null,"stop":null,"unknown_one":null)",
      R"("response_format":{"type":"text"},"modalities":["text"],"verbosity":"medium","prediction":{"type":"content"})",
      R"("tools":[],"tool_choice":"none","functions":[])",
      R"("n":128,"best_of":128)",
      R"("n":null,"best_of":null)",
      R"("max_tokens":5,"max_completion_tokens":5,"stream":false,"logprobs":false)",
      R"("temperature":2,"top_p":1,"stop":"x","seed":9223372036854775807)",
  };
  for (const char* rest : kAccepted) EXPECT_EQ(refused(read_chat, chat(rest)), "") << rest;
}

TEST(ChatRequest, RefusesByName) {
  const std::pair<const char*, const char*> kCases[] = {
      {R"("n":0)", "n"},
      {R"("n":129)", "n"},
      {R"("n":1.5)", "n"},
      {R"("n":"1")", "n"},
      {R"("best_of":2)", "best_of"},
      {R"("best_of":1,"n":2)", "best_of"},
      {R"("best_of":3,"n":2)", "best_of"},
      {R"("frequency_penalty":2.1)", "frequency_penalty"},
      {R"("frequency_penalty":"0")", "frequency_penalty"},
      {R"("presence_penalty":-2.1)", "presence_penalty"},
      {R"("repetition_penalty":0)", "repetition_penalty"},
      {R"("repetition_penalty":1e-60)", "repetition_penalty"},
      {R"("repetition_penalty":11)", "repetition_penalty"},
      {R"("logit_bias":[])", "logit_bias"},
      {R"("logit_bias":{"1":100.5})", "logit_bias"},
      {R"("logit_bias":{"1":"NaN"})", "logit_bias"},
      {R"("logit_bias":{"1":null})", "logit_bias"},
      {R"("logit_bias":{"-1":5})", "logit_bias"},
      {R"("logit_bias":{"1.5":5})", "logit_bias"},
      {R"("logit_bias":{"":5})", "logit_bias"},
      {R"("logit_bias":{"99999999999":5})", "logit_bias"},
      {R"("top_k":-2)", "top_k"},
      {R"("top_k":1.5)", "top_k"},
      {R"("min_p":1.1)", "min_p"},
      {R"("min_p":-0.1)", "min_p"},
      {R"("response_format":{"type":"json_object"})", "response_format"},
      {R"("response_format":{"type":"json_schema","json_schema":3})", "response_format"},
      {R"("response_format":"text")", "response_format"},
      {R"("tool_choice":"required")", "tool_choice"},
      {R"("tool_choice":{"type":"function","function":{"name":"f"}})", "tool_choice"},
      {R"("tools":[{"type":"retrieval"}])", "tools[0].type"},
      {R"("tools":[{"type":"function"}])", "tools[0].function"},
      {R"("tools":[{"type":"function","function":{"name":""}}])", "tools[0].function.name"},
      {R"("tools":[{"type":"function","function":{"name":"f","parameters":[]}}])",
       "tools[0].function.parameters"},
      {R"("tools":[{"type":"function","function":{"name":"f","strict":true}}])",
       "tools[0].function.strict"},
      {R"("tools":{})", "tools"},
      {R"("functions":[{"name":"f"}])", "functions"},
      {R"("function_call":{"name":"f"})", "function_call"},
      {R"("modalities":["text","audio"])", "modalities"},
      {R"("audio":{"voice":"x"})", "audio"},
      {R"("web_search_options":{})", "web_search_options"},
      {R"("verbosity":"high")", "verbosity"},
      {R"("guided_json":{})", "guided_json"},
      {R"("echo":true)", "echo"},
      {R"("continue_final_message":true)", "continue_final_message"},
      {R"("something_else":1)", "something_else"},
      {R"("temperature":-0.1)", "temperature"},
      {R"("temperature":2.1)", "temperature"},
      {R"("temperature":1e400)", "temperature"},
      {R"("temperature":"hot")", "temperature"},
      {R"("top_p":0)", "top_p"},
      {R"("top_p":1.5)", "top_p"},
      {R"("seed":1.5)", "seed"},
      {R"("seed":1e30)", "seed"},
      {R"("stop":"")", "stop"},
      {R"("stop":["a",""])", "stop[1]"},
      {R"("stop":["a",1])", "stop[1]"},
      {R"("stop":["1","2","3","4","5","6","7","8","9","10","11","12","13","14","15","16","17"])",
       "stop"},
      {R"("max_tokens":0)", "max_tokens"},
      {R"("max_tokens":-1)", "max_tokens"},
      {R"("max_tokens":1.5)", "max_tokens"},
      {R"("max_tokens":4,"max_completion_tokens":5)", "max_tokens"},
      {R"("logprobs":5)", "logprobs"},
      {R"("logprobs":true,"top_logprobs":21)", "top_logprobs"},
      {R"("top_logprobs":2)", "top_logprobs"},
      {R"("stream":"yes")", "stream"},
      {R"("stream_options":{"include_usage":true})", "stream_options"},
      {R"("stream":true,"stream_options":{"continuous_usage_stats":1})",
       "stream_options.continuous_usage_stats"},
      {R"("stream":true,"stream_options":{"x":1})", "stream_options.x"},
      {R"("thinking":true)", "thinking"},
      {R"("thinking":{"type":"maybe"})", "thinking.type"},
      {R"("thinking":{"type":"enabled","budget_tokens":5})", "thinking.budget_tokens"},
      {R"("reasoning_effort":3)", "reasoning_effort"},
      {R"("chat_template_kwargs":{"thinking":true,"enable_thinking":false})",
       "chat_template_kwargs"},
      {R"("chat_template_kwargs":{"foo":1})", "chat_template_kwargs.foo"},
      {R"("model":7)", "model"},
      {R"("messages":[])", "messages"},
      {R"("messages":"hi")", "messages"},
      {R"("messages":[3])", "messages[0]"},
      {R"("messages":[{"content":"x"}])", "messages[0].role"},
      {R"("messages":[{"role":"robot","content":"x"}])", "messages[0].role"},
      {R"("messages":[{"role":"function","content":"x"}])", "messages[0].role"},
      {R"("messages":[{"role":"user"}])", "messages[0].content"},
      {R"("messages":[{"role":"user","content":null}])", "messages[0].content"},
      {R"("messages":[{"role":"user","content":5}])", "messages[0].content"},
      {R"("messages":[{"role":"user","content":["x"]}])", "messages[0].content[0]"},
      {R"("messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"u"}}]}])",
       "messages[0].content[0].type"},
      {R"("messages":[{"role":"user","content":"x","mood":"good"}])", "messages[0].mood"},
      {R"("messages":[{"role":"user","content":"x","tool_calls":[{}]}])", "messages[0].tool_calls"},
      {R"("messages":[{"role":"user","content":"x"},{"role":"assistant","content":"y"}])",
       "messages"},
      {R"("messages":[{"role":"system","content":"x"}])", "messages"},
      {R"("messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":3}}]},{"role":"tool","content":"r"}])",
       "messages[0].tool_calls[0].function.arguments"},
      {R"("messages":[{"role":"assistant","tool_calls":[{"id":"1"}]},{"role":"tool","content":"r"}])",
       "messages[0].tool_calls[0].function"},
      {R"("messages":[{"role":"assistant","content":"x","function_call":{"name":"f"}},{"role":"user","content":"y"}])",
       "messages[0].function_call"},
  };
  for (const auto& [rest, param] : kCases) {
    std::string message;
    EXPECT_EQ(refused(read_chat, chat(rest), &message), param) << rest;
    // Who reads only the message must find the field as well.
    const std::string last = std::string(param).substr(std::string(param).rfind('.') + 1);
    EXPECT_NE(message.find(last), std::string::npos) << rest << "\n  " << message;
  }
  EXPECT_EQ(refused(read_chat, "[]"), "(body)");
  EXPECT_EQ(refused(read_chat, "{}"), "messages");
}

TEST(CompletionRequest, PromptForms) {
  EXPECT_EQ(std::get<std::string>(read_completion(R"({"prompt":"x"})").prompts[0]), "x");
  EXPECT_EQ(read_completion(R"({"prompt":["x","y"]})").prompts.size(), 2u);
  EXPECT_EQ(std::get<std::vector<TokenId>>(read_completion(R"({"prompt":[1,2,3.0]})").prompts[0]),
            (std::vector<TokenId>{1, 2, 3}));
  const CompletionBody both = read_completion(R"({"prompt":[[1],"x",[2,3]]})");
  EXPECT_EQ(both.prompts.size(), 3u);
  EXPECT_EQ(std::get<std::string>(both.prompts[1]), "x");
}

TEST(CompletionRequest, DefaultsAndFields) {
  const CompletionBody plain = read_completion(completion(""));
  EXPECT_EQ(plain.max_tokens, 16);
  EXPECT_FALSE(plain.echo);
  EXPECT_EQ(plain.options.sampling.logprobs, -1);
  const CompletionBody all = read_completion(completion(
      R"("max_tokens":0,"echo":true,"logprobs":0,"ignore_eos":true,"return_tokens_as_token_ids":true,
                     "add_special_tokens":true,"suffix":null,"best_of":1,"n":1)"));
  EXPECT_EQ(all.max_tokens, 0);
  EXPECT_TRUE(all.echo && all.options.sampling.ignore_eos && all.options.tokens_as_ids &&
              all.add_special_tokens);
  EXPECT_EQ(all.options.sampling.logprobs, 0);
}

TEST(CompletionRequest, RefusesByName) {
  const std::pair<const char*, const char*> kCases[] = {
      {R"("prompt":[])", "prompt"},
      {R"("prompt":5)", "prompt"},
      {R"("prompt":{})", "prompt"},
      {R"("prompt":[1,"x"])", "prompt[1]"},
      {R"("prompt":[1,-2])", "prompt[1]"},
      {R"("prompt":[1,2.5])", "prompt[1]"},
      {R"("prompt":[1,99999999999])", "prompt[1]"},
      {R"("prompt":[[1],5])", "prompt[1]"},
      {R"("prompt":[[1],[true]])", "prompt[1][0]"},
      {R"("suffix":"x")", "suffix"},
      {R"("best_of":3)", "best_of"},
      {R"("logprobs":21)", "logprobs"},
      {R"("logprobs":true)", "logprobs"},
      {R"("max_tokens":-1)", "max_tokens"},
      {R"("echo":1)", "echo"},
      {R"("messages":[])", "messages"},
      {R"("tools":[{}])", "tools"},
      {R"("prompt_logprobs":1)", "prompt_logprobs"},
      {R"("stop_token_ids":[5])", "stop_token_ids"},
  };
  for (const auto& [rest, param] : kCases)
    EXPECT_EQ(refused(read_completion, completion(rest)), param) << rest;
  EXPECT_EQ(refused(read_completion, "{}"), "prompt");
  std::string many = R"({"prompt":["a")";
  for (int i = 0; i < 128; ++i) many += ",\"a\"";
  EXPECT_EQ(refused(read_completion, many + "]}"), "prompt");
  const auto choices = [](const char* n) {
    return refused(read_completion, R"({"prompt":["a","b",[5]],"n":)" + std::string(n) + "}");
  };
  EXPECT_EQ(choices("42"), "");
  EXPECT_EQ(choices("43"), "n");
}

}  // namespace
}  // namespace nibble::api::openai
