#include "bench/record.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <numeric>

namespace nibble::bench {
namespace {

std::string text_chunk(const std::string& text, const std::string& more = "") {
  return fmt::format(R"({{"choices":[{{"index":0,"delta":{{"content":"{}"}}}}]{}}})", text, more);
}

std::string usage(int completion) {
  return fmt::format(R"("usage":{{"prompt_tokens":10,"completion_tokens":{},)"
                     R"("prompt_tokens_details":{{"cached_tokens":4}}}})",
                     completion);
}

std::string counted_chunk(const std::string& text, int completion) {
  return text_chunk(text, "," + usage(completion));
}

std::vector<double> values(const std::vector<Sample>& samples) {
  std::vector<double> out;
  for (const Sample& sample : samples)
    for (int i = 0; i < static_cast<int>(sample.weight + 0.5); ++i) out.push_back(sample.value);
  return out;
}

// Three tokens, then two 10 ms later, then one 20 ms later, and the end.
TEST(StreamRecorder, ServersOwnCountsMakeEachTokensLatency) {
  RequestRecord record;
  record.start_s = 1.0;
  StreamRecorder recorder(record);
  recorder.on_event(R"({"choices":[{"delta":{"role":"assistant","content":""}}]})", 1.02);
  recorder.on_event(counted_chunk("abc", 3), 1.05);
  recorder.on_event(counted_chunk("de", 5), 1.06);
  recorder.on_event(counted_chunk("f", 6), 1.08);
  recorder.on_event(R"({"choices":[{"delta":{},"finish_reason":"stop"}],)" + usage(6) + "}", 1.09);
  recorder.on_event(R"({"choices":[],)" + usage(6) + "}", 1.09);
  recorder.on_event("[DONE]", 1.09);
  recorder.finish(1.1);
  ASSERT_TRUE(record.ok()) << record.error;
  EXPECT_TRUE(record.tokens_exact);
  EXPECT_EQ(record.prompt_tokens, 10);
  EXPECT_EQ(record.cached_tokens, 4);
  EXPECT_EQ(record.completion_tokens, 6);
  EXPECT_NEAR(*record.first_token_ms(), 50.0, 1e-9);
  EXPECT_NEAR(record.end_to_end_ms(), 100.0, 1e-9);
  std::vector<Sample> gaps, events;
  record.add_token_gaps_ms(gaps);
  const std::vector<double> expected = {0.0, 0.0, 5.0, 5.0, 20.0}, got = values(gaps);
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-9);
  record.add_event_gaps_ms(events);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_NEAR(events[0].value, 10.0, 1e-9);
  EXPECT_NEAR(events[1].value, 20.0, 1e-9);
}

TEST(StreamRecorder, AsManyEventsAsTokensAreOneEach) {
  RequestRecord record;
  StreamRecorder recorder(record);
  for (int i = 1; i <= 3; ++i) recorder.on_event(text_chunk("x", R"(,"usage":null)"), i);
  recorder.on_event(R"({"choices":[],)" + usage(3) + "}", 3.0);
  recorder.on_event("[DONE]", 3.0);
  recorder.finish(3.0);
  EXPECT_TRUE(record.tokens_exact);
  ASSERT_EQ(record.events.size(), 3u);
  EXPECT_EQ(record.events[2].tokens, 1.0);
}

// Five tokens in two events, the server does not say how: two and a half each, and said to be no count.
TEST(StreamRecorder, UnknownCountsAreSpreadEvenly) {
  RequestRecord record;
  StreamRecorder recorder(record);
  recorder.on_event(text_chunk("ab"), 1.0);
  recorder.on_event(text_chunk("cde"), 2.0);
  recorder.on_event(R"({"choices":[],)" + usage(5) + "}", 2.0);
  recorder.on_event("[DONE]", 2.0);
  recorder.finish(2.0);
  EXPECT_FALSE(record.tokens_exact);
  std::vector<Sample> gaps;
  record.add_token_gaps_ms(gaps);
  double tokens = 0.0, sum_ms = 0.0;
  for (const Sample& sample : gaps) {
    tokens += sample.weight;
    sum_ms += sample.weight * sample.value;
  }
  EXPECT_NEAR(tokens, 4.0, 1e-9);     // all but the first
  EXPECT_NEAR(sum_ms, 1000.0, 1e-9);  // from the first event to the last
}

TEST(StreamRecorder, ThoughtsAndCallsAreOutput) {
  for (const char* delta : {R"({"reasoning_content":"a"})", R"({"reasoning":"a"})",
                            R"({"tool_calls":[{"index":0}]})"}) {
    RequestRecord record;
    StreamRecorder(record).on_event(fmt::format(R"({{"choices":[{{"delta":{}}}]}})", delta), 1.0);
    EXPECT_EQ(record.events.size(), 1u) << delta;
  }
}

TEST(StreamRecorder, FailuresHaveAKind) {
  const auto kind_of = [](const std::vector<std::string>& events) {
    RequestRecord record;
    StreamRecorder recorder(record);
    for (const std::string& event : events) recorder.on_event(event, 1.0);
    recorder.finish(1.0);
    return record.error;
  };
  EXPECT_EQ(kind_of({text_chunk("a")}), "stream without end");
  EXPECT_EQ(kind_of({"{\"choices\":", "[DONE]"}), "damaged event");
  EXPECT_EQ(kind_of({R"({"error":{"message":"no","type":"t","code":"broken"}})", "[DONE]"}),
            "error in the stream: broken");
}

TEST(HttpErrors, KindIsStatusAndCode) {
  RequestRecord record;
  record_http_error(record, 404, R"({"error":{"message":"no such","code":"model_not_found"}})");
  EXPECT_EQ(record.error, "HTTP 404 model_not_found");
  EXPECT_EQ(record.message, "no such");
  record_http_error(record, 502, "<html>bad gateway</html>");
  EXPECT_EQ(record.error, "HTTP 502");
  EXPECT_EQ(record.message, "<html>bad gateway</html>");
}

}  // namespace
}  // namespace nibble::bench
