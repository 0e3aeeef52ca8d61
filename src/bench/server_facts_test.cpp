// What is read of a server's URL and of its metrics.
#include <gtest/gtest.h>

#include "bench/http_client.h"
#include "bench/metrics_text.h"
#include "nibble/status.h"

namespace nibble::bench {
namespace {

TEST(Endpoint, UrlsInTheirForms) {
  const auto parts = [](const std::string& url) {
    const Endpoint e = parse_endpoint(url);
    return e.host + " " + e.port + " " + e.path;
  };
  EXPECT_EQ(parts("http://127.0.0.1:8000"), "127.0.0.1 8000 ");
  EXPECT_EQ(parts("http://localhost/"), "localhost 80 ");
  EXPECT_EQ(parts("http://host:1/v1"), "host 1 ");
  EXPECT_EQ(parts("http://host:1/v1/"), "host 1 ");
  EXPECT_EQ(parts("http://host:1/models/a/v1"), "host 1 /models/a");
  EXPECT_EQ(parts("http://[::1]:8000/x/"), "::1 8000 /x");
  EXPECT_EQ(parts("http://[::1]"), "::1 80 ");
  EXPECT_EQ(parse_endpoint("http://[::1]:8000").text(), "http://[::1]:8000");
}

TEST(Endpoint, OthersAreRefused) {
  for (const char* url :
       {"", "127.0.0.1:8000", "https://host", "http://", "http://:80", "http://host:port",
        "http://host:", "http://host:123456", "http://user@host", "http://[::1"})
    EXPECT_THROW((void)parse_endpoint(url), Error) << url;
}

TEST(Metrics, SeriesOfAMetricAreAdded) {
  const char* text =
      "# HELP a_total what\n"
      "# TYPE a_total counter\n"
      "a_total{model=\"x\",path=\"{y}\"} 3\n"
      "a_total{model=\"z\"} 4.5\n"
      "a_total_more 100\n"
      "b 1e3";
  EXPECT_EQ(metric_value(text, "a_total"), 7.5);
  EXPECT_EQ(metric_value(text, "b"), 1000.0);
  EXPECT_EQ(metric_value(text, "a"), std::nullopt);
}

TEST(Metrics, DraftCountsUnderEitherName) {
  const auto nibble = draft_counts(
      "nibble:draft_tokens_total{m=\"a\"} 10\nnibble:draft_tokens_accepted_total{m=\"a\"} 8\n");
  ASSERT_TRUE(nibble);
  EXPECT_EQ(nibble->drafted, 10.0);
  EXPECT_EQ(nibble->accepted, 8.0);
  EXPECT_TRUE(
      draft_counts("vllm:spec_decode_num_draft_tokens_total 1\n"
                   "vllm:spec_decode_num_accepted_tokens_total 1\n"));
  EXPECT_FALSE(draft_counts("nibble:draft_tokens_total 10\n"));
}

}  // namespace
}  // namespace nibble::bench
