#include "bench/trace.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <set>

#include "api/json.h"
#include "nibble/status.h"

namespace nibble::bench {
namespace {

constexpr TraceKind kKinds[] = {TraceKind::kRandom, TraceKind::kSharedPrefix, TraceKind::kAgent};

TraceOptions options_of(TraceKind kind, std::uint64_t seed = 1) {
  TraceOptions options;
  options.kind = kind;
  options.seed = seed;
  options.requests = 50;
  return options;
}

std::vector<std::string> bodies(const std::vector<Conversation>& trace) {
  std::vector<std::string> out;
  for (const Conversation& conversation : trace)
    for (int turn = 0; turn < static_cast<int>(conversation.turns.size()); ++turn)
      out.push_back(conversation.messages_json(turn));
  return out;
}

TEST(Trace, SameSeedSameRequests) {
  const TextSource text = TextSource::generated();
  for (const TraceKind kind : kKinds) {
    const auto first = make_trace(options_of(kind), text),
               again = make_trace(options_of(kind), text);
    EXPECT_EQ(bodies(first), bodies(again));
    EXPECT_EQ(bodies(first).size(), 50u);
    EXPECT_EQ(count_turns(first), 50u);
    EXPECT_NE(bodies(first), bodies(make_trace(options_of(kind, 2), text)));
    for (std::size_t i = 0; i < first.size(); ++i)
      for (std::size_t j = 0; j < first[i].turns.size(); ++j)
        EXPECT_EQ(first[i].turns[j].think_s, again[i].turns[j].think_s);
  }
}

// Asking for more requests leaves the first ones as they are.
TEST(Trace, ALongerTraceBeginsWithTheShorterOne) {
  const TextSource text = TextSource::generated();
  TraceOptions longer = options_of(TraceKind::kRandom);
  longer.requests = 80;
  std::vector<std::string> all = bodies(make_trace(longer, text));
  all.resize(50);
  EXPECT_EQ(all, bodies(make_trace(options_of(TraceKind::kRandom), text)));
}

TEST(Trace, MessagesAreJson) {
  const TextSource text = TextSource::generated();
  for (const TraceKind kind : kKinds)
    for (const std::string& body : bodies(make_trace(options_of(kind), text))) {
      const auto document = api::JsonDocument::parse(body);
      ASSERT_TRUE(document) << document.status().message;
      EXPECT_TRUE(document->root().is(api::Json::Kind::kArray));
    }
}

TEST(Trace, PromptLengthsStayInTheirRange) {
  TraceOptions options = options_of(TraceKind::kRandom);
  options.prompt = {100, 200};
  for (const std::string& body : bodies(make_trace(options, TextSource::generated()))) {
    EXPECT_GE(body.size(), 400u);
    EXPECT_LE(body.size(), 800u + 400u);  // a sentence, the question and JSON on top
  }
}

TEST(Trace, SharedPrefixesAreShared) {
  TraceOptions options = options_of(TraceKind::kSharedPrefix);
  options.prefixes = 3;
  std::set<std::string> prefixes, questions;
  for (const Conversation& conversation : make_trace(options, TextSource::generated())) {
    ASSERT_EQ(conversation.messages.size(), 2u);
    prefixes.insert(conversation.messages[0]);
    questions.insert(conversation.messages[1]);
  }
  EXPECT_EQ(prefixes.size(), 3u);
  EXPECT_GT(questions.size(), 25u);
}

TEST(Trace, AnAgentRepeatsItsHistory) {
  TraceOptions options = options_of(TraceKind::kAgent);
  options.turns = {3, 5};
  const auto trace = make_trace(options, TextSource::generated());
  bool called = false;
  for (std::size_t c = 0; c < trace.size(); ++c) {
    const Conversation& conversation = trace[c];
    if (c + 1 < trace.size()) {
      EXPECT_GE(conversation.turns.size(), 3u);
    }
    EXPECT_LE(conversation.turns.size(), 5u);
    EXPECT_EQ(conversation.turns[0].think_s, 0.0);
    for (int turn = 1; turn < static_cast<int>(conversation.turns.size()); ++turn) {
      std::string before = conversation.messages_json(turn - 1);
      before.pop_back();  // the array's end
      EXPECT_TRUE(conversation.messages_json(turn).starts_with(before));
      EXPECT_EQ(conversation.turns[static_cast<std::size_t>(turn)].messages,
                conversation.turns[static_cast<std::size_t>(turn) - 1].messages + 2);
    }
    called = called || conversation.messages_json(static_cast<int>(conversation.turns.size()) - 1)
                               .find("tool_calls") != std::string::npos;
  }
  EXPECT_TRUE(called);
}

class TextFile : public ::testing::Test {
 protected:
  std::filesystem::path write(const std::string& text) {
    const auto path = std::filesystem::path(::testing::TempDir()) / "bench_text_test.txt";
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
};

TEST_F(TextFile, SlicesAreWholeCharacters) {
  std::string words;
  while (words.size() < 2000) words += "Grüße aus 深圳, 👋 ";
  const TextSource text = TextSource::from_file(write(words));
  TraceOptions options = options_of(TraceKind::kRandom);
  options.prompt = {1, 900};  // longer than the file at times
  for (const std::string& body : bodies(make_trace(options, text)))
    EXPECT_TRUE(api::JsonDocument::parse(body)) << body;
}

TEST_F(TextFile, WhatIsNoTextIsRefused) {
  EXPECT_THROW((void)TextSource::from_file("/nonexistent/file"), Error);
  EXPECT_THROW((void)TextSource::from_file(write("too short")), Error);
  EXPECT_THROW((void)TextSource::from_file(write(std::string(2000, '\xff'))), Error);
}

}  // namespace
}  // namespace nibble::bench
