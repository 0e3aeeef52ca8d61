#include "api/http.h"

#include <gtest/gtest.h>

#include "api/errors.h"

namespace nibble::api {
namespace {

TEST(Http, ResponseHead) {
  std::string out;
  HttpResponse response;
  response.status = 429;
  response.headers = {{"Retry-After", "1"}};
  append_response_head(out, response, {Framing::kLength, 12, false});
  EXPECT_TRUE(out.starts_with("HTTP/1.1 429 Too Many Requests\r\nServer: nibble\r\nDate: ")) << out;
  EXPECT_NE(out.find("Content-Type: application/json\r\nRetry-After: 1\r\nContent-Length: "
                     "12\r\nConnection: close\r\n\r\n"),
            std::string::npos)
      << out;
  const std::size_t date = out.find("Date: ") + 6;
  EXPECT_EQ(out.substr(date, out.find("\r\n", date) - date).size(),
            std::string("Mon, 30 Nov 2026 21:00:00 GMT").size());
}

TEST(Http, NoContentHasNoLength) {
  std::string out;
  HttpResponse response;
  response.status = 204;
  append_response_head(out, response, {});
  EXPECT_EQ(out.find("Content-Length"), std::string::npos);
}

TEST(Http, ChunksAndEvents) {
  std::string event;
  append_sse_event(event, "{\"a\":1}");
  EXPECT_EQ(event, "data: {\"a\":1}\n\n");
  std::string out;
  append_chunk(out, event);
  EXPECT_EQ(out, "f\r\ndata: {\"a\":1}\n\n\r\n");
  append_chunk(out, "");
  EXPECT_EQ(out.size(), 20u);
  EXPECT_EQ(kSseComment.front(), ':');
  EXPECT_TRUE(kSseComment.ends_with("\n\n"));
}

TEST(Http, PathOfTarget) {
  EXPECT_EQ(path_of_target("/v1/models?x=1#y"), "/v1/models");
  EXPECT_EQ(path_of_target("/v1/models/owner%2Fname"), "/v1/models/owner/name");
  EXPECT_EQ(path_of_target("http://host:80/a/b?c"), "/a/b");
  EXPECT_EQ(path_of_target("http://host"), "/");
  EXPECT_EQ(path_of_target("*"), "*");
  EXPECT_EQ(path_of_target("/a%2"), std::nullopt);
  EXPECT_EQ(path_of_target("/a%zz"), std::nullopt);
  EXPECT_EQ(path_of_target("/a%"), std::nullopt);
}

TEST(Errors, HaveOpenAisShape) {
  EXPECT_EQ(
      error_json({400, "bad \"x\"", "messages[0]", ""}),
      R"({"error":{"message":"bad \"x\"","type":"invalid_request_error","param":"messages[0]","code":null}})");
  EXPECT_EQ(
      error_json(api_error({StatusCode::kResourceExhausted, "full", ""})),
      R"({"error":{"message":"full","type":"rate_limit_error","param":null,"code":"queue_full"}})");
}

TEST(Errors, EveryStatusCodeHasItsHttpStatus) {
  const std::pair<StatusCode, int> kExpected[] = {
      {StatusCode::kInvalidArgument, 400}, {StatusCode::kNotFound, 404},
      {StatusCode::kTooLarge, 413},        {StatusCode::kResourceExhausted, 429},
      {StatusCode::kUnavailable, 503},     {StatusCode::kCancelled, 503},
      {StatusCode::kInternal, 500}};
  for (const auto& [code, status] : kExpected) {
    const HttpResponse response = error_response(api_error({code, "m", "p"}));
    EXPECT_EQ(response.status, status);
    EXPECT_EQ(response.content_type, "application/json");
    EXPECT_EQ(response.headers.size(), status == 429 || status == 503 ? 1u : 0u);
  }
}

}  // namespace
}  // namespace nibble::api
