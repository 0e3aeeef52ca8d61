#include "text/output_parser.h"

#include <gtest/gtest.h>

#include <random>

#include "text/python_json.h"
#include "text/test_encoders.h"
#include "text/test_tokenizer.h"

namespace nibble::text {
namespace {

const char* const kBash =
    R"({"name": "bash", "parameters": {"type": "object", "properties": {"command": {"type": "string"}}}})";
const char* const kPlot = R"({"name": "plot", "parameters": {"type": "object", "properties": {
    "points": {"type": "object"}, "scale": {"type": "number"}, "steps": {"type": "integer"}, "input": {"type": "string"},
    "either": {"type": ["integer", "string"]}, "free": {}}}})";

// A call's text, D standing for the DSML mark.
std::string call(const std::string& name, const std::string& parameters) {
  return "<Dinvoke name=\"" + name + "\">\n" + parameters + "\n</Dinvoke>";
}
std::string parameter(const std::string& name, const std::string& is_string,
                      const std::string& value) {
  return "<Dparameter name=\"" + name + "\" string=\"" + is_string + "\">" + value +
         "</Dparameter>";
}
std::string block(const std::string& calls) {
  return "\n\n<Dtool_calls>\n" + calls + "\n</Dtool_calls>";
}

struct Parsed {
  std::string reasoning;
  std::string content;
  std::vector<std::string> calls;  // "id name arguments"
  int malformed = 0;
  int reasoning_tokens = 0;

  bool operator==(const Parsed&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Parsed& p) {
  out << "reasoning {" << p.reasoning << "} content {" << p.content << "} malformed "
      << p.malformed;
  for (const std::string& one : p.calls) out << "\n  call " << one;
  return out;
}

class OutputParserTest : public ::testing::Test {
 protected:
  // Text with marks to ids: D is ｜DSML｜, T and /T in ⟨⟩ the think tokens, ⟨U⟩ and ⟨E⟩ the User
  // and EOS tokens.
  std::vector<TokenId> ids(const std::string& script) const {
    std::vector<TokenId> out;
    std::string plain;
    const auto flush = [&] {
      for (const TokenId id : tokenizer_.encode(plain)) out.push_back(id);
      plain.clear();
    };
    const std::pair<std::string, std::string> kMarks[] = {{"<D", "<"},
                                                          {"</D", "</"},
                                                          {"⟨D⟩", ""},
                                                          {"⟨T⟩", "<think>"},
                                                          {"⟨/T⟩", "</think>"},
                                                          {"⟨U⟩", "<｜User｜>"},
                                                          {"⟨E⟩", "<｜end▁of▁sentence｜>"}};
    for (std::size_t at = 0; at < script.size();) {
      bool found = false;
      for (const auto& [mark, meaning] : kMarks) {
        if (script.compare(at, mark.size(), mark) != 0) continue;
        found = true;
        at += mark.size();
        if (mark.back() == 'D' || mark == "⟨D⟩") plain += meaning;
        flush();
        out.push_back(
            *tokenizer_.id_of(mark.back() == 'D' || mark == "⟨D⟩" ? "｜DSML｜" : meaning));
        break;
      }
      if (!found) plain += script[at++];
    }
    flush();
    return out;
  }

  Parsed parse_ids(const std::vector<TokenId>& tokens, const std::vector<std::size_t>& cuts,
                   const OutputParserOptions& options) const {
    OutputParser parser(encoder_, options);
    OutputDelta all;
    const auto take = [&](OutputDelta&& delta) {
      EXPECT_EQ(first_invalid_utf8(delta.reasoning), std::nullopt);
      EXPECT_EQ(first_invalid_utf8(delta.content), std::nullopt);
      all.append(std::move(delta));
    };
    std::size_t begin = 0;
    for (const std::size_t cut : cuts) {
      take(parser.push(std::span(tokens).subspan(begin, cut - begin)));
      begin = cut;
    }
    for (; begin < tokens.size(); ++begin) take(parser.push(tokens[begin]));
    take(parser.finish());
    Parsed out{all.reasoning, all.content, {}, parser.malformed_calls(), parser.reasoning_tokens()};
    for (const ParsedToolCall& one : all.tool_calls) {
      EXPECT_EQ(one.index, static_cast<int>(out.calls.size()));
      EXPECT_TRUE(parse_json(one.arguments).ok()) << one.arguments;
      out.calls.push_back(one.id + " " + one.name + " " + one.arguments);
    }
    EXPECT_EQ(parser.tool_calls(), static_cast<int>(out.calls.size()));
    return out;
  }

  // Parses token by token, all at once, and for every split in two: always the same.
  Parsed parse(const std::string& script, bool in_reasoning = false, bool with_tools = true) const {
    OutputParserOptions options;
    options.starts_in_reasoning = in_reasoning;
    if (with_tools) options.tools = {{kBash}, {kPlot}};
    const std::vector<TokenId> tokens = ids(script);
    const Parsed single = parse_ids(tokens, {}, options);
    for (std::size_t cut = 0; cut <= tokens.size(); ++cut) {
      const Parsed split = parse_ids(tokens, {cut, tokens.size()}, options);
      EXPECT_EQ(split, single) << script << " cut at " << cut;
    }
    return single;
  }

  std::string content(const std::string& script) const {
    const Parsed parsed = parse(script);
    EXPECT_EQ(parsed.reasoning, "");
    EXPECT_TRUE(parsed.calls.empty());
    return parsed.content;
  }

  Tokenizer tokenizer_ = test_tokenizer();
  ChatEncoder encoder_{tokenizer_, *read_encoder(kPreviewEncoder, "e.py").profile};
};

TEST_F(OutputParserTest, PlainAnswers) {
  EXPECT_EQ(content("The answer is 19."), "The answer is 19.");
  EXPECT_EQ(content(""), "");
  EXPECT_EQ(content("a < b </ c\n\n<d>\n\n\n< e\n\n"), "a < b </ c\n\n<d>\n\n\n< e\n\n");
  EXPECT_EQ(content("x\n\n<"), "x\n\n<");
  EXPECT_EQ(content("<tool_calls> </think> ｜DSML｜ <｜User｜>"),
            "<tool_calls> </think> ｜DSML｜ <｜User｜>");
}

TEST_F(OutputParserTest, Reasoning) {
  const Parsed parsed = parse("first,\n\nthen⟨/T⟩The answer.", true);
  EXPECT_EQ(parsed.reasoning, "first,\n\nthen");
  EXPECT_EQ(parsed.content, "The answer.");
  EXPECT_EQ(parsed.reasoning_tokens, static_cast<int>(tokenizer_.encode("first,\n\nthen").size()));
}

// Field case 11.
TEST_F(OutputParserTest, ThinkingThatDoesNotEndAsItShould) {
  EXPECT_EQ(parse("long thought", true).reasoning, "long thought");
  EXPECT_EQ(parse("long thought", true).content, "");
  EXPECT_EQ(parse("a⟨E⟩b", true).reasoning, "ab");  // end of sentence inside, with ignore_eos
  const Parsed twice = parse("a⟨/T⟩b⟨/T⟩c", true);
  EXPECT_EQ(twice.reasoning, "a");
  EXPECT_EQ(twice.content, "bc");
  const Parsed reopened = parse("b⟨T⟩c⟨/T⟩d");  // thinking off, but the model thinks
  EXPECT_EQ(reopened.reasoning, "c");
  EXPECT_EQ(reopened.content, "bd");
  EXPECT_EQ(parse("⟨T⟩a⟨/T⟩b", true).reasoning, "a");
  const Parsed call_inside =
      parse("hm" + block(call("bash", parameter("command", "true", "ls"))) + "⟨/T⟩done", true);
  EXPECT_EQ(call_inside.reasoning, "hm");
  EXPECT_EQ(call_inside.content, "done");
  EXPECT_EQ(call_inside.calls, std::vector<std::string>{"call_0 bash {\"command\": \"ls\"}"});
  const Parsed open_call = parse("hm\n\n<Dtool_calls>\n<Dinvoke name=\"bash\">\n⟨/T⟩done", true);
  EXPECT_EQ(open_call.reasoning, "hmbash(");
  EXPECT_EQ(open_call.content, "done");
  EXPECT_EQ(open_call.malformed, 1);
}

TEST_F(OutputParserTest, ToolCalls) {
  const Parsed parsed =
      parse("I look." + block(call("bash", parameter("command", "true", "ls -l")) + "\n" +
                              call("plot", parameter("points", "false", R"({"a":[1,2]})") + "\n" +
                                               parameter("scale", "false", "1.5"))));
  EXPECT_EQ(parsed.content, "I look.");
  EXPECT_EQ(parsed.calls,
            (std::vector<std::string>{R"(call_0 bash {"command": "ls -l"})",
                                      R"(call_1 plot {"points": {"a":[1,2]}, "scale": 1.5})"}));
  EXPECT_EQ(parsed.malformed, 0);
}

TEST_F(OutputParserTest, ToleratedVariants) {
  const std::string one = call("bash", parameter("command", "true", "ls"));
  const std::vector<std::string> expected = {R"(call_0 bash {"command": "ls"})"};
  for (const std::string& script : {
           "x<Dtool_calls>\n" + one + "\n</Dtool_calls>",  // no blank line
           "x\n<Dtool_calls>" + one + "</Dtool_calls>\n",  // one line end, none inside
           "x\n\n<Dtool_calls>  \n\n" + one + " \n </Dtool_calls>\n\n",
           "x" + block("<Dinvoke  name = \"bash\" >" + parameter("command", "true", "ls") +
                       "</Dinvoke >"),
           "x\n\n" + one,  // no block around it
           "x\n\n" + one + "\n</Dtool_calls>",
           "x\n\n<Dtool_calls>\n" + one,  // cut after the call
           "x\n\n<Dtool_calls>\n" + one + "\n</Dtool_ca",
           "x\n\n⟨U⟩<Dtool_calls>⟨E⟩" + one + "</Dtool_calls>⟨E⟩",
       }) {
    const Parsed parsed = parse(script);
    EXPECT_EQ(parsed.content, "x") << script;
    EXPECT_EQ(parsed.calls, expected) << script;
    EXPECT_EQ(parsed.malformed, 0) << script;
  }
  const Parsed empty = parse(block(call("bash", "")));
  EXPECT_EQ(empty.calls, std::vector<std::string>{"call_0 bash {}"});
  EXPECT_EQ(empty.content, "");
  const Parsed around = parse("a" + block(one) + "\n\nb" + block(one) + "c");
  EXPECT_EQ(around.content, "a\n\nbc");
  EXPECT_EQ(around.calls.size(), 2u);
  const Parsed between = parse(block(one + " and " + one));
  EXPECT_EQ(between.content, " and ");
}

// Field case 10.
TEST_F(OutputParserTest, StringValuesAreByteExact) {
  for (const std::string& value :
       {std::string(R"(make 2>&1 | grep "<err>" && echo 'a&amp;b' \)"),
        std::string("\n\nlines\n\n"), std::string(""),
        std::string("</parameter> <｜DSML｜invoke name=\"x\"> </｜DSML｜parameter>"),
        std::string("a <"), std::string("b </"), std::string("é 深度 👩‍👩‍👧"),
        std::string("nul\0byte", 8), std::string("\t \"quoted\" \\n")}) {
    const Parsed parsed = parse("x" + block(call("bash", parameter("command", "true", value))));
    ASSERT_EQ(parsed.calls.size(), 1u) << value;
    EXPECT_EQ(parsed.calls[0], "call_0 bash {\"command\": " + python_json_string(value) + "}");
    EXPECT_EQ(parsed.content, "x");
  }
  // Control tokens inside a value are its text, except special ones and the DSML mark.
  EXPECT_EQ(
      parse(block(call("bash", parameter("command", "true", "grep ⟨T⟩⟨/T⟩⟨U⟩⟨E⟩ f")))).calls,
      std::vector<std::string>{R"(call_0 bash {"command": "grep <think></think><｜User｜> f"})"});
}

TEST_F(OutputParserTest, TypedValues) {
  const auto arguments = [&](const std::string& name, const std::string& value) {
    const Parsed parsed = parse(block(call("plot", parameter(name, "false", value))));
    return parsed.calls.empty() ? "malformed, content {" + parsed.content + "}"
                                : parsed.calls[0].substr(12);
  };
  EXPECT_EQ(arguments("points", R"({"a":[1,2]})"), R"({"points": {"a":[1,2]}})");
  EXPECT_EQ(arguments("scale", " 1e400\n"), R"({"scale": 1e400})");
  EXPECT_EQ(arguments("steps", "3"), R"({"steps": 3})");
  EXPECT_EQ(arguments("steps", "3.0"), R"({"steps": 3.0})");
  EXPECT_EQ(arguments("steps", "null"), R"({"steps": null})");
  EXPECT_EQ(arguments("either", "\"s\""), R"({"either": "s"})");
  EXPECT_EQ(arguments("free", "[true]"), R"({"free": [true]})");
  EXPECT_EQ(arguments("other", "false"), R"({"other": false})");
  EXPECT_EQ(arguments("steps", "3.5"), "malformed, content {plot(steps=3.5)}");
  EXPECT_EQ(arguments("steps", "\"3\""), "malformed, content {plot(steps=\"3\")}");
  EXPECT_EQ(arguments("points", "[1]"), "malformed, content {plot(points=[1])}");
  EXPECT_EQ(arguments("points", R"({"a":[1,2)"), R"(malformed, content {plot(points={"a":[1,2)})");
  EXPECT_EQ(arguments("scale", ""), "malformed, content {plot(scale=)}");
  EXPECT_EQ(arguments("scale", "NaN"), "malformed, content {plot(scale=NaN)}");
}

TEST_F(OutputParserTest, WrappedArgumentsAreUnwrappedWhereTheSchemaHasNoSuchParameter) {
  const auto calls = [&](const std::string& name, const std::string& key,
                         const std::string& is_string, const std::string& value) {
    const Parsed parsed = parse(block(call(name, parameter(key, is_string, value))));
    return parsed.calls.empty() ? parsed.content : parsed.calls[0].substr(7);
  };
  EXPECT_EQ(calls("bash", "arguments", "true", R"({"command":"ls"})"), R"(bash {"command": "ls"})");
  EXPECT_EQ(calls("bash", "input", "false", R"({"command":"ls"})"), R"(bash {"command": "ls"})");
  EXPECT_EQ(calls("plot", "input", "true", R"({"steps":1})"), R"(plot {"input": "{\"steps\":1}"})");
  EXPECT_EQ(calls("plot", "arguments", "true", R"({"steps":"x"})"),
            R"(plot(arguments={"steps":"x"}))");
  EXPECT_EQ(calls("bash", "input", "true", "ls"), R"(bash {"input": "ls"})");
  EXPECT_EQ(calls("unknown", "input", "true", "{}"), R"(unknown {"input": "{}"})");
}

TEST_F(OutputParserTest, MalformedCallsBecomeContent) {
  const std::string value = parameter("command", "true", "ls");
  const struct {
    std::string script;
    std::string content;
  } kCases[] = {
      {"\n\n<Dtool_calls>\n<Dinvoke name=\"bash\">\n<Dparameter name=\"command\" "
       "string=\"true\">ls -",
       "bash(command=ls -"},
      {"\n\n<Dtool_calls>\n<Dinvoke name=\"bash\">\n" + value, "bash(command=ls"},
      {"\n\n<Dtool_calls>\n<Dinvoke name=\"bash\">\n<Dparam", "bash("},
      {"\n\n<Dtool_calls>\n<Dinvoke name=\"bash\">\n<Dparameter name=\"command\" "
       "string=\"true\">ls</Dparam",
       "bash(command=ls"},
      {block("<Dinvoke name=\"bash\">\n" + value), "bash(command=ls"},  // </invoke> missing
      {block(call("bash", value + value)), "bash(command=ls, command=ls)"},
      {block(call("bash", value + "what?")), "bash(command=ls)what?\n"},
      {block(call("bash", "<Dparameter name=\"command\">ls</Dparameter>")),
       "bash()\n<parameter name=\"command\">ls</parameter>\n"},
      {block(call("bash", "<Dparameter name=\"command\" string=\"true\">ls")),
       "bash(command=ls\n)"},
      {block(call("bash", parameter("command", "true", "a⟨D⟩b"))), "bash(command=ab)"},
      {block(call("bash", parameter("command", "true", "a<Dfoo>b"))), "bash(command=a<foo>b)"},
      {"\n\n<Dtool_ca", ""},
      {"a\n\n<Dtool_ca", "a"},
      {"a\n\n<Dfoo", "a\n\n<foo"},
      {"a\n\n<Dfoo bar>b", "a\n\n<foo bar>b"},
      {"a⟨D⟩b", "ab"},
      {"a</Dinvoke>b", "ab"},
      {"a\n\n<Dinvoke>b", "a\n\n<invoke>b"},
  };
  for (const auto& c : kCases) {
    const Parsed parsed = parse(c.script);
    EXPECT_EQ(parsed.content, c.content) << c.script;
    EXPECT_TRUE(parsed.calls.empty()) << c.script;
  }
  // The calls around a malformed one are delivered.
  const std::string good = call("bash", value);
  const Parsed mixed =
      parse(block(good + "\n" + call("plot", parameter("steps", "false", "x")) + "\n" + good));
  EXPECT_EQ(mixed.calls.size(), 2u);
  EXPECT_EQ(mixed.content, "plot(steps=x)");
  EXPECT_EQ(mixed.malformed, 1);
}

TEST_F(OutputParserTest, WithoutToolsMarkupIsContent) {
  const std::string script = "x" + block(call("bash", parameter("command", "true", "ls")));
  const Parsed parsed = parse(script, false, false);
  EXPECT_TRUE(parsed.calls.empty());
  EXPECT_EQ(parsed.content,
            "x\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"bash\">\n<｜DSML｜parameter "
            "name=\"command\" string=\"true\">ls"
            "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>");
  EXPECT_EQ(parse("x\n\n", false, false).content, "x\n\n");
}

// Field case 12: ids that cut characters, streamed singly, and an end inside one.
TEST_F(OutputParserTest, CharactersAreNeverCut) {
  const std::string text = "👩‍👩‍👧 naïve 深度";
  EXPECT_EQ(content(text), text);
  std::vector<TokenId> tokens = ids(text);
  tokens.pop_back();
  EXPECT_EQ(parse_ids(tokens, {}, {}).content, "👩‍👩‍👧 naïve 深\uFFFD");
  const std::vector<TokenId> cut_by_switch = {3 + 0xF0, 3 + 0x9F, encoder_.control().think_end,
                                              3 + 'b'};
  OutputParserOptions thinking;
  thinking.starts_in_reasoning = true;
  EXPECT_EQ(parse_ids(cut_by_switch, {}, thinking).reasoning, "\uFFFD");
  EXPECT_EQ(parse_ids(cut_by_switch, {}, thinking).content, "b");
}

// What an answer was parsed into, put into the history, gives the ids that were generated: prefix
// caches rely on it.
TEST_F(OutputParserTest, RoundTripsThroughTheEncoder) {
  const std::string script =
      "I think.⟨/T⟩Look:" +
      block(call("bash", parameter("command", "true", "a\n\"b\" <c>")) + "\n" +
            call("plot", parameter("steps", "false", "[1, {\"k\": null}]"))) +
      "⟨E⟩";
  OutputParserOptions options;
  options.starts_in_reasoning = true;
  options.tools = {{kBash}};
  OutputParser parser(encoder_, options);
  const std::vector<TokenId> generated = ids(script);
  OutputDelta delta = parser.push(generated);
  delta.append(parser.finish());
  Message answer;
  answer.role = Role::kAssistant;
  answer.content = {{"text", delta.content}};
  answer.reasoning_content = delta.reasoning;
  for (const ParsedToolCall& one : delta.tool_calls)
    answer.tool_calls.push_back({one.id, one.name, one.arguments});
  ASSERT_EQ(answer.tool_calls.size(), 2u);
  Message question;
  question.content = {{"text", "q"}};
  ChatRequest request{.messages = {question},
                      .tools = {},
                      .response_format = {},
                      .thinking = {ThinkingMode::kThinking, ""}};
  auto expected = encoder_.encode(request).value();
  expected.insert(expected.end(), generated.begin(), generated.end());
  request.messages.push_back(answer);
  EXPECT_EQ(encoder_.encode(request).value(), expected);
}

// Random streams of marks, tags and text: nothing crashes, cuts never matter, and every letter
// comes out exactly once.
TEST_F(OutputParserTest, RandomStreams) {
  const std::vector<std::string> kParts = {"a",
                                           "b ",
                                           "\n",
                                           "\n\n",
                                           "<",
                                           "</",
                                           ">",
                                           "\"",
                                           "é",
                                           "深",
                                           "⟨T⟩",
                                           "⟨/T⟩",
                                           "⟨U⟩",
                                           "⟨D⟩",
                                           "<D",
                                           "</D",
                                           "<Dtool_calls>",
                                           "</Dtool_calls>",
                                           "<Dinvoke name=\"bash\">",
                                           "</Dinvoke>",
                                           "<Dparameter name=\"k\" string=\"true\">",
                                           "<Dparameter name=\"n\" string=\"false\">",
                                           "</Dparameter>",
                                           "7",
                                           "{\"x\": 1}"};
  std::mt19937 random(5);
  for (int round = 0; round < 3000; ++round) {
    std::string script;
    std::string letters;
    const int parts = 1 + static_cast<int>(random() % 24);
    for (int i = 0; i < parts; ++i) {
      const std::string& part = kParts[random() % kParts.size()];
      script += part;
      if (part == "a" || part == "b " || part == "é" || part == "深")
        letters += part.front() == 'b' ? "b" : part;
    }
    OutputParserOptions options;
    options.starts_in_reasoning = random() % 2 == 0;
    if (random() % 4 != 0) options.tools = {{kBash}};
    const std::vector<TokenId> tokens = ids(script);
    const Parsed single = parse_ids(tokens, {}, options);
    std::vector<std::size_t> cuts;
    for (std::size_t at = random() % 4; at < tokens.size(); at += 1 + random() % 6)
      cuts.push_back(at);
    ASSERT_EQ(parse_ids(tokens, cuts, options), single) << script;
    std::string all = single.reasoning + single.content;
    for (const std::string& one : single.calls) all += one;
    for (const std::string& letter : {std::string("é"), std::string("深")}) {
      const auto count = [&](const std::string& text) {
        int n = 0;
        for (std::size_t at = text.find(letter); at != std::string::npos;
             at = text.find(letter, at + 1))
          ++n;
        return n;
      };
      ASSERT_EQ(count(all), count(letters)) << script << "\n" << single;
    }
    if (!options.tools.empty()) {
      ASSERT_EQ(all.find("DSML"), std::string::npos) << script << "\n" << single;
    }
  }
}

}  // namespace
}  // namespace nibble::text
