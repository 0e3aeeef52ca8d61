// The server over real sockets: protocol, limits, life cycle.
#include "api/server.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

#include "api/testing/answers.h"
#include "api/testing/raw_client.h"
#include "api/testing/test_server.h"

namespace nibble::api::testing {
namespace {

using std::chrono::milliseconds;

const std::string kChat = "/v1/chat/completions";
const std::string kAsk = R"({"model":"tiny","messages":[{"role":"user","content":"hi"}]})";
const std::string kAskStream =
    R"({"model":"tiny","messages":[{"role":"user","content":"hi"}],"stream":true})";

// A limit on what may go wrong, not a measure of speed.
constexpr milliseconds kSoon{20000};

double metric(TestServer& server, const std::string& name) {
  RawClient client(server.port());
  const std::string text = "\n" + client.get("/metrics").body;
  const std::size_t at = text.find("\n" + name + "{model_name=\"tiny\"} ");
  EXPECT_NE(at, std::string::npos) << name << " in\n" << text;
  return at == std::string::npos ? -1 : std::stod(text.substr(text.find("} ", at) + 2));
}

TEST(Server, GetRoutes) {
  TestServer server("Hello!<eos>");
  RawClient client(server.port());
  EXPECT_EQ(client.get("/live").status, 200);
  const RawResponse health = client.get("/health");
  EXPECT_EQ(health.status, 200);
  EXPECT_EQ(health.body, R"({"status":"ok","model":"tiny"})");
  EXPECT_EQ(client.get("/ready").status, 200);
  const RawResponse models = client.get("/v1/models");
  EXPECT_EQ(at(models.body, "data.0.id"), "tiny");
  EXPECT_EQ(at(models.body, "data.0.max_model_len"), "4096");
  EXPECT_EQ(at(client.get("/v1/models/tiny").body, "id"), "tiny");
  EXPECT_EQ(client.get("/v1/models/other").status, 404);
  EXPECT_EQ(at(client.get("/nowhere").body, "error.code"), "not_found");
  EXPECT_EQ(client.get("/nowhere").status, 404);
}

TEST(Server, PageIsWholeAndKeptToItself) {
  TestServer server("x<eos>");
  RawClient client(server.port());
  const RawResponse page = client.get("/");
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(page.headers.at("content-type"), "text/html; charset=utf-8");
  EXPECT_TRUE(page.headers.at("content-security-policy").starts_with("default-src 'none'"));
  EXPECT_TRUE(page.body.starts_with("<!doctype html>"));
  EXPECT_TRUE(page.body.ends_with("</html>\n"));
  for (const char* asset : {"/assets/page.css", "/assets/page.js", "/assets/icon.svg"}) {
    EXPECT_NE(page.body.find(asset), std::string::npos);
    const RawResponse response = client.get(asset);
    EXPECT_EQ(response.status, 200);
    EXPECT_GT(response.body.size(), 100u);
    EXPECT_EQ(response.body.find("http://") != std::string::npos,
              std::string(asset) == "/assets/icon.svg");  // xmlns
    EXPECT_EQ(response.body.find("https://"), std::string::npos);
  }
}

TEST(Server, HeadOptionsAndWrongMethods) {
  TestServer server("x<eos>");
  RawClient client(server.port());
  client.send("HEAD /health HTTP/1.1\r\nHost: x\r\n\r\n");
  const RawResponse head = client.read_response(true);
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.headers.at("content-length"), "30");
  client.send("OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: x\r\n\r\n");
  const RawResponse options = client.read_response();
  EXPECT_EQ(options.status, 204);
  EXPECT_EQ(options.headers.at("allow"), "POST, OPTIONS");
  EXPECT_EQ(options.headers.count("access-control-allow-origin"), 0u);
  client.send("OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(client.read_response().status, 204);
  const RawResponse get = client.get(kChat);
  EXPECT_EQ(get.status, 405);
  EXPECT_EQ(get.headers.at("allow"), "POST, OPTIONS");
  client.send("DELETE /v1/models HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(client.read_response().status, 405);
  EXPECT_EQ(client.get("/health").status, 200);  // the same connection all along
}

TEST(Server, KeepAliveCloseAndHttp10) {
  TestServer server("Hello!<eos>");
  RawClient client(server.port());
  for (int i = 0; i < 3; ++i) {
    const RawResponse response = client.post(kChat, kAsk);
    EXPECT_EQ(response.status, 200) << response.body;
    EXPECT_EQ(response.headers.at("connection"), "keep-alive");
    const RawResponse stream = client.post(kChat, kAskStream);
    EXPECT_TRUE(stream.complete);
    EXPECT_EQ(join_stream(stream.body).content, "Hello!");
  }
  client.send("GET /live HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(client.read_response().headers.at("connection"), "close");
  EXPECT_TRUE(client.closed_within(kSoon));
  RawClient old(server.port());
  old.send("GET /live HTTP/1.0\r\n\r\n");
  EXPECT_EQ(old.read_response().status, 200);
  EXPECT_TRUE(old.closed_within(kSoon));
  RawClient old_stream(server.port());
  old_stream.send("POST " + kChat +
                  " HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: " +
                  std::to_string(kAskStream.size()) + "\r\n\r\n" + kAskStream);
  const RawResponse plain = old_stream.read_response();  // ends with the connection
  EXPECT_EQ(plain.headers.count("transfer-encoding"), 0u);
  EXPECT_EQ(join_stream(plain.body).content, "Hello!");
}

TEST(Server, RequestsInOnePacketAreAnsweredInOrder) {
  TestServer server("Hello!<eos>");
  RawClient client(server.port());
  client.send(post_text(kChat, kAsk) + "GET /live HTTP/1.1\r\nHost: x\r\n\r\n" +
              post_text(kChat, kAskStream));
  EXPECT_EQ(at(client.read_response().body, "choices.0.message.content"), "Hello!");
  EXPECT_EQ(at(client.read_response().body, "status"), "alive");
  EXPECT_EQ(join_stream(client.read_response().body).content, "Hello!");
}

TEST(Server, BytesMayComeOneByOneAndInChunks) {
  TestServer server("Hello!<eos>");
  RawClient client(server.port());
  for (const char byte : post_text(kChat, kAsk)) client.send(std::string_view(&byte, 1));
  EXPECT_EQ(at(client.read_response().body, "choices.0.message.content"), "Hello!");
  client.send("POST " + kChat +
              " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: "
              "chunked\r\n\r\n");
  for (std::size_t i = 0; i < kAsk.size(); i += 7) {
    std::string chunk;
    append_chunk(chunk, std::string_view(kAsk).substr(i, 7));
    client.send(chunk);
  }
  client.send("0\r\n\r\n");
  EXPECT_EQ(at(client.read_response().body, "choices.0.message.content"), "Hello!");
}

TEST(Server, LimitsAreToldEarly) {
  TestServerOptions options;
  options.engine.script = [](const Request&) { return script_ids("x<eos>"); };
  options.server.limits.body_bytes = 100000;
  options.server.limits.header_bytes = 4096;
  TestServer server(options);
  {
    RawClient client(
        server.port());  // announces too much, and is told so before it sends any of it
    client.send(
        "POST " + kChat +
        " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100001\r\n\r\n");
    const RawResponse response = client.read_response();
    EXPECT_EQ(response.status, 413);
    EXPECT_EQ(at(response.body, "error.code"), "request_too_large");
    EXPECT_EQ(response.headers.at("connection"), "close");
  }
  {
    RawClient client(server.port());  // sends it all the same, and can still read the answer
    const RawResponse response = client.post(kChat, std::string(3000000, ' '));
    EXPECT_EQ(response.status, 413);
  }
  {
    RawClient client(server.port());  // without a length
    client.send("POST " + kChat +
                " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: "
                "chunked\r\n\r\n");
    std::string chunk;
    append_chunk(chunk, std::string(200000, ' '));
    client.send(chunk);
    EXPECT_EQ(client.read_response().status, 413);
  }
  {
    RawClient client(server.port());
    client.send("GET /live HTTP/1.1\r\nX-Long: " + std::string(5000, 'a') + "\r\n\r\n");
    EXPECT_EQ(client.read_response().status, 431);
  }
  {
    RawClient client(server.port());
    client.send("POST " + kChat +
                " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nExpect: "
                "100-continue\r\nContent-Length: " +
                std::to_string(kAsk.size()) + "\r\n\r\n");
    EXPECT_EQ(client.read_response().status, 100);
    client.send(kAsk);
    EXPECT_EQ(client.read_response().status, 200);
  }
  RawClient client(server.port());
  EXPECT_EQ(client.get("/live").status, 200);
}

TEST(Server, WhatIsNotHttpIsRefused) {
  TestServer server("x<eos>");
  const char* kNoise[] = {
      "hello\r\n\r\n",
      "GET / HTTP/9.9\r\n\r\n",
      "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
      "POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
      "GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n",
      "POST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"};
  for (const char* noise : kNoise) {
    RawClient client(server.port());
    client.send(noise);
    EXPECT_EQ(client.read_response().status, 400) << noise;
    EXPECT_TRUE(client.closed_within(kSoon));
  }
}

TEST(Server, SlowClientsDoNotStay) {
  TestServerOptions options;
  options.engine.script = [](const Request&) { return script_ids("x<eos>"); };
  options.server.tick = milliseconds(10);
  options.server.limits.idle_timeout = milliseconds(100);
  options.server.limits.header_timeout = milliseconds(100);
  options.server.limits.body_timeout = milliseconds(100);
  options.server.limits.linger_timeout = milliseconds(50);
  TestServer server(options);
  RawClient silent(server.port());
  RawClient half_header(server.port());
  half_header.send("GET /live HTTP/1.1\r\nHos");
  RawClient half_body(server.port());
  half_body.send(post_text(kChat, kAsk).substr(0, 150));
  RawClient leaves(server.port());
  leaves.send(post_text(kChat, kAsk).substr(0, 150));
  leaves.close();
  EXPECT_EQ(half_header.read_response().status, 408);
  EXPECT_EQ(half_body.read_response().status, 408);
  EXPECT_TRUE(half_header.closed_within(kSoon));
  EXPECT_TRUE(half_body.closed_within(kSoon));
  EXPECT_TRUE(silent.closed_within(kSoon));
  RawClient client(server.port());
  EXPECT_EQ(client.post(kChat, kAsk).status, 200);
  EXPECT_EQ(server.engine().requests().size(), 1u);
}

TEST(Server, TooManyConnectionsAreToldSo) {
  TestServerOptions options;
  options.engine.script = [](const Request&) { return script_ids("x<eos>"); };
  options.server.max_connections = 2;
  TestServer server(options);
  RawClient first(server.port());
  RawClient second(server.port());
  EXPECT_EQ(first.get("/live").status, 200);
  EXPECT_EQ(second.get("/live").status, 200);
  RawClient third(server.port());
  EXPECT_EQ(third.read_response().status, 503);
  first.close();
  EXPECT_TRUE(eventually([&] {
    RawClient again(server.port());
    return again.get("/live").status == 200;
  }));
}

TEST(Server, KeysAndContentTypes) {
  TestServerOptions options;
  options.engine.script = [](const Request&) { return script_ids("x<eos>"); };
  options.server.service.api_key = "secret";
  TestServer server(options);
  RawClient client(server.port());
  EXPECT_EQ(client.get("/health").status, 200);
  EXPECT_EQ(client.get("/").status, 200);
  EXPECT_EQ(client.get("/v1/models").status, 401);
  const RawResponse refused = client.post(kChat, kAsk, "Authorization: Bearer secre\r\n");
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(at(refused.body, "error.code"), "invalid_api_key");
  EXPECT_EQ(client.post("/tokenize", R"({"prompt":"x"})", "Authorization: Basic secret\r\n").status,
            401);
  EXPECT_EQ(client.post(kChat, kAsk, "Authorization: Bearer secret\r\n").status, 200);
  EXPECT_EQ(client.post(kChat, kAsk, "authorization: bearer secret\r\n").status, 200);
  client.send("POST " + kChat +
              " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer secret\r\nContent-Type: "
              "text/plain\r\nContent-Length: " +
              std::to_string(kAsk.size()) + "\r\n\r\n" + kAsk);
  EXPECT_EQ(client.read_response().status, 415);
}

TEST(Server, BadBodiesGetTheirPlaceAndTheServerLives) {
  TestServer server("x<eos>");
  RawClient client(server.port());
  const auto refused = [&](const std::string& body) {
    const RawResponse response = client.post(kChat, body);
    EXPECT_EQ(response.status, 400) << body.substr(0, 100);
    return at(response.body, "error.message");
  };
  EXPECT_NE(refused(R"({"messages":[{"role":"user","content":"\ud83d"}]})").find("byte 39"),
            std::string::npos);
  EXPECT_NE(refused("{\"messages\":[{\"role\":\"user\",\"content\":\"\xff\"}]}").find("byte 39"),
            std::string::npos);
  EXPECT_NE(refused("{\"messages\": [}").find("byte"), std::string::npos);
  EXPECT_NE(refused("").find("empty"), std::string::npos);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_NE(refused(std::string(100000, '[')).find("nested deeper"), std::string::npos);
  EXPECT_NE(refused(R"({"messages":[],"tools":)" + std::string(100000, '[') +
                    std::string(100000, ']') + "}")
                .find("nested"),
            std::string::npos);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
  EXPECT_EQ(client.post(kChat, R"({"messages":[{"role":"user","content":"a\u0000b"}]})").status,
            200);
  EXPECT_EQ(
      client.post(kChat, R"({"model":"other","messages":[{"role":"user","content":"x"}]})").status,
      404);
  std::string words;
  for (int i = 0; i < 5000; ++i) words += " word" + std::to_string(i);
  const RawResponse longer =
      client.post(kChat, R"({"messages":[{"role":"user","content":")" + words + R"("}]})");
  EXPECT_EQ(longer.status, 400);
  EXPECT_EQ(at(longer.body, "error.code"), "context_length_exceeded");
  EXPECT_NE(at(longer.body, "error.message").find("4096"), std::string::npos);
  const RawResponse both =
      client.post(kChat, R"({"messages":[{"role":"user","content":"x"}],"max_tokens":4095})");
  EXPECT_EQ(both.status, 400);
  EXPECT_NE(at(both.body, "error.message").find("4095"), std::string::npos);
}

TEST(Server, LoadingIsSaidAndThenReady) {
  std::promise<void> gate;
  TestServerOptions options;
  options.engine.script = [](const Request&) { return script_ids("Hello!<eos>"); };
  options.gate = gate.get_future().share();
  TestServer server(options);
  RawClient client(server.port());
  EXPECT_TRUE(eventually([&] { return at(client.get("/health").body, "progress") == "0.5"; }));
  const RawResponse health = client.get("/health");
  EXPECT_EQ(health.status, 503);
  EXPECT_EQ(at(health.body, "status"), "loading");
  EXPECT_EQ(client.get("/ready").status, 503);
  EXPECT_EQ(client.get("/live").status, 200);
  EXPECT_EQ(client.get("/v1/models").status, 503);
  EXPECT_EQ(client.get("/").status, 200);
  EXPECT_EQ(metric(server, "vllm:num_requests_running"), 0);
  const RawResponse chat = client.post(kChat, kAsk);
  EXPECT_EQ(chat.status, 503);
  EXPECT_EQ(chat.headers.at("retry-after"), "2");
  EXPECT_EQ(at(chat.body, "error.code"), "loading");
  EXPECT_FALSE(server.ready());
  gate.set_value();
  server.wait_ready();
  EXPECT_EQ(client.get("/health").status, 200);
  EXPECT_EQ(client.post(kChat, kAsk).status, 200);
}

TEST(Server, StopWhileLoading) {
  std::promise<void> gate;
  TestServerOptions options;
  options.engine.script = [](const Request&) { return script_ids("x<eos>"); };
  options.gate = gate.get_future().share();
  TestServer server(options);
  server.server().stop();
  server.join();
  EXPECT_FALSE(server.ready());
}

TEST(Server, LoadFailureEndsTheRun) {
  ServerOptions options;
  options.port = 0;
  options.service.model_name = "tiny";
  Server server(options);
  try {
    server.run(
        [](const LoadProgress&) -> std::unique_ptr<ServedModel> {
          throw CheckpointError("shard 2 is cut");
        },
        {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kRefusedCheckpoint);
    EXPECT_STREQ(error.what(), "shard 2 is cut");
  }
}

TEST(Server, PortInUse) {
  TestServer server("x<eos>");
  ServerOptions options;
  options.port = server.port();
  try {
    Server second(options);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kFailed);
    EXPECT_NE(std::string(error.what()).find("port " + std::to_string(server.port())),
              std::string::npos);
    EXPECT_NE(std::string(error.what()).find("in use"), std::string::npos);
  }
  options.host = "203.0.113.1";  // nobody's: reserved for documents
  EXPECT_THROW(Server{options}, Error);
}

TEST(Server, StopLetsRunningRequestsFinish) {
  TestServerOptions options;
  options.engine.script = [](const Request&) { return script_ids("Hello there, friend!<eos>"); };
  options.server.tick = milliseconds(10);
  TestServer server(options);
  server.engine().pause();
  RawClient stream(server.port());
  stream.send(post_text(kChat, kAskStream));
  RawClient plain(server.port());
  plain.send(post_text(kChat, kAsk));
  RawClient idle(server.port());
  EXPECT_EQ(idle.get("/live").status, 200);
  EXPECT_TRUE(eventually([&] { return server.engine().requests().size() == 2; }));
  server.server().stop();
  EXPECT_TRUE(idle.closed_within(kSoon));
  RawClient late(server.port());
  EXPECT_EQ(late.get("/health").status, 503);
  RawClient later(server.port());
  const RawResponse refused = later.post(kChat, kAsk);
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(at(refused.body, "error.code"), "draining");
  EXPECT_EQ(refused.headers.at("connection"), "close");
  server.engine().resume();
  EXPECT_EQ(join_stream(stream.read_response().body).content, "Hello there, friend!");
  EXPECT_EQ(at(plain.read_response().body, "choices.0.message.content"), "Hello there, friend!");
  server.join();
}

TEST(Server, StopCutsOffWhatDoesNotFinishInTime) {
  TestServerOptions options = endless();
  options.server.drain_timeout = milliseconds(100);
  TestServer server(options);
  RawClient stream(server.port());
  stream.send(post_text(kChat, kAskStream));
  RawClient plain(server.port());
  plain.send(post_text(kChat, kAsk));
  EXPECT_TRUE(eventually([&] { return server.engine().requests().size() == 2; }));
  server.server().stop();
  const std::vector<std::string> events = sse_events(stream.read_response().body);
  ASSERT_GE(events.size(), 2u);
  EXPECT_EQ(at(events[events.size() - 2], "error.code"), "draining");
  EXPECT_EQ(events.back(), "[DONE]");
  EXPECT_EQ(plain.read_response().status, 503);
  server.join();
}

TEST(Server, SecondStopIsImmediate) {
  TestServer server(endless());
  RawClient stream(server.port());
  stream.send(post_text(kChat, kAskStream));
  EXPECT_NE(stream.read_until("data: "), "");
  server.server().stop();
  server.server().stop();
  server.join();
  EXPECT_TRUE(stream.closed_within(kSoon));
}

TEST(Server, AClientThatLeavesEndsItsRequest) {
  TestServerOptions options = endless();
  options.engine.max_running = 1;
  TestServer server(options);
  int expected = 0;
  const auto ended = [&] {
    return eventually([&] { return server.engine().cancelled() == expected; });
  };
  for (const bool hard : {false, true}) {
    for (const std::string* body : {&kAskStream, &kAsk}) {
      // While it is generated.
      RawClient client(server.port());
      client.send(post_text(kChat, *body));
      EXPECT_TRUE(eventually([&] { return server.engine().stats().running == 1; }));
      // While it waits in the queue.
      RawClient waiting(server.port());
      waiting.send(post_text(kChat, *body));
      EXPECT_TRUE(eventually([&] { return server.engine().stats().waiting == 1; }));
      hard ? waiting.reset() : waiting.close();
      ++expected;
      EXPECT_TRUE(ended());
      if (body == &kAskStream) {
        EXPECT_NE(client.read_until("data: "), "");
      }
      hard ? client.reset() : client.close();
      ++expected;
      EXPECT_TRUE(ended());
    }
  }
  // Before the first token: the engine is in the middle of a long step.
  server.engine().pause();
  RawClient client(server.port());
  client.send(post_text(kChat, kAskStream));
  EXPECT_TRUE(eventually([&] { return server.engine().stats().waiting == 1; }));
  client.close();
  ++expected;
  EXPECT_TRUE(ended());
  EXPECT_EQ(metric(server, "nibble:requests_cancelled_total"), expected);
  EXPECT_EQ(metric(server, "vllm:num_requests_running"), 0);
  EXPECT_EQ(metric(server, "vllm:num_requests_waiting"), 0);
}

TEST(Server, ManyClientsThatLeave) {
  TestServer server(endless());
  const int clients = std::getenv("NIBBLE_TEST_LONG") ? 1000 : 100;
  for (int i = 0; i < clients; ++i) {
    RawClient client(server.port());
    client.send(post_text(kChat, i % 2 ? kAskStream : kAsk));
    if (i % 4 == 1) {
      EXPECT_NE(client.read_until("data: "), "");
    }
  }
  EXPECT_TRUE(eventually([&] {
    const EngineStats stats = server.engine().stats();
    return stats.running == 0 && stats.waiting == 0 &&
           server.engine().cancelled() == static_cast<int>(server.engine().requests().size());
  }));
  RawClient client(server.port());
  EXPECT_EQ(client.get("/health").status, 200);
}

TEST(Server, StreamsSendHeadersAtOnceAndCommentsUntilTheFirstToken) {
  TestServerOptions options;
  options.engine.script = [](const Request&) { return script_ids("Hello!<eos>"); };
  options.server.tick = milliseconds(10);
  options.server.limits.comment_interval = milliseconds(40);
  TestServer server(options);
  server.engine().pause();
  RawClient client(server.port());
  client.send(post_text(kChat, kAskStream));
  const std::string head = client.read_until("\r\n\r\n");
  EXPECT_NE(head.find("Content-Type: text/event-stream"), std::string::npos) << head;
  const std::string waiting = client.read_until(": waiting\n\n");
  EXPECT_EQ(waiting.find("data: "), std::string::npos);
  server.engine().resume();
  EXPECT_NE(client.read_until("data: [DONE]"), "");
}

TEST(Server, AClientThatDoesNotReadIsGivenUp) {
  TestServerOptions options = endless();
  options.engine.step_time = std::chrono::microseconds(1000);
  options.engine.tokens_per_step = 20;
  options.server.service.stream_buffer_bytes = 200000;
  TestServer server(options);
  RawClient client(server.port());
  // Log-probabilities make events long, so that the sockets' buffers are soon full.
  client.send(post_text(
      kChat,
      R"({"messages":[{"role":"user","content":"x"}],"stream":true,"logprobs":true,"top_logprobs":20})"));
  EXPECT_TRUE(eventually([&] { return server.engine().cancelled() == 1; }));
  const RawResponse response = client.read_response();
  EXPECT_FALSE(response.complete);  // what is missing must not look like the end
}

TEST(Server, AFullQueueIs429) {
  TestServerOptions options = endless();
  options.engine.max_waiting = 1;
  options.engine.max_running = 1;
  TestServer server(options);
  server.engine().pause();
  RawClient first(server.port());
  first.send(post_text(kChat, kAsk));
  EXPECT_TRUE(eventually([&] { return server.engine().stats().waiting == 1; }));
  RawClient second(server.port());
  for (const std::string* body : {&kAsk, &kAskStream}) {
    const RawResponse response = second.post(kChat, *body);
    EXPECT_EQ(response.status, 429);
    EXPECT_EQ(response.headers.at("retry-after"), "1");
    EXPECT_EQ(at(response.body, "error.code"), "queue_full");
  }
}

TEST(Server, AFailedStepIs500ForThatRequestAlone) {
  TestServer server("Hello!<eos>");
  RawClient client(server.port());
  server.engine().fail_next({StatusCode::kInternal, "step failed", ""});
  const RawResponse plain = client.post(kChat, kAsk);
  EXPECT_EQ(plain.status, 500);
  EXPECT_EQ(at(plain.body, "error.message"), "step failed");
  server.engine().fail_next({StatusCode::kInternal, "step failed", ""});
  const RawResponse stream = client.post(kChat, kAskStream);
  EXPECT_EQ(stream.status, 200);  // sent before
  const std::vector<std::string> events = sse_events(stream.body);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(at(events[0], "error.message"), "step failed");
  EXPECT_EQ(events[1], "[DONE]");
  EXPECT_EQ(client.post(kChat, kAsk).status, 200);
}

TEST(Server, ALostDeviceIsToldToEveryStreamAndEndsTheRun) {
  TestServerOptions options = endless();
  options.server.port = 0;
  options.server.service.model_name = "tiny";
  options.engine.info = test_model_info();
  options.engine.info.max_model_len = options.context;
  Server server(options.server);
  std::atomic<ScriptedEngine*> engine{nullptr};
  std::string end;
  std::thread running([&] {
    try {
      server.run(
          [&](const LoadProgress&) {
            auto scripted = std::make_unique<ScriptedEngine>(options.engine);
            engine = scripted.get();
            return make_model(std::move(scripted));
          },
          {});
    } catch (const Error& error) {
      end = error.what();
      EXPECT_EQ(error.exit_code(), ExitCode::kFailed);
    }
  });
  RawClient idle(server.port());
  EXPECT_TRUE(eventually([&] { return idle.get("/health").status == 200; }));
  RawClient stream(server.port()), plain(server.port());
  stream.send(post_text(kChat, kAskStream));
  plain.send(post_text(kChat, kAsk));
  EXPECT_TRUE(eventually([&] { return engine.load()->requests().size() == 2; }));
  engine.load()->lose_device("the GPU is lost: a test");
  const std::vector<std::string> events = sse_events(stream.read_response().body);
  ASSERT_GE(events.size(), 2u);
  EXPECT_EQ(at(events[events.size() - 2], "error.message"), "the GPU is lost: a test");
  EXPECT_EQ(events.back(), "[DONE]");
  EXPECT_EQ(plain.read_response().status, 500);
  running.join();
  EXPECT_EQ(end, "the GPU is lost: a test");
  EXPECT_TRUE(idle.closed_within(kSoon));
}

TEST(Server, AStalledEngineIsNotAlive) {
  TestServerOptions options = endless();
  options.server.service.stall_limit = milliseconds(50);
  TestServer server(options);
  RawClient stream(server.port());
  stream.send(post_text(kChat, kAskStream));
  EXPECT_NE(stream.read_until("data: "), "");
  server.engine().pause();
  RawClient client(server.port());
  EXPECT_TRUE(eventually([&] { return client.get("/live").status == 503; }));
  EXPECT_NE(at(client.get("/live").body, "cause").find("no step"), std::string::npos);
  EXPECT_EQ(client.get("/health").status, 503);
  server.engine().resume();
  EXPECT_TRUE(eventually([&] { return client.get("/live").status == 200; }));
}

TEST(Server, ResetsThePrefixCache) {
  TestServerOptions options;
  options.server.service.api_key = "secret";
  TestServer server(options);
  RawClient client(server.port());
  EXPECT_EQ(client.post("/reset_prefix_cache", "").status, 401);
  EXPECT_EQ(server.engine().cache_resets(), 0);
  client.send(
      "POST /reset_prefix_cache HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "
      "secret\r\nContent-Length: 0\r\n\r\n");
  EXPECT_EQ(client.read_response().status, 200);
  EXPECT_EQ(server.engine().cache_resets(), 1);
  EXPECT_EQ(client.get("/reset_prefix_cache").status, 405);
}

TEST(Server, MetricsHaveTheirNames) {
  TestServer server("Hello!<eos>");
  RawClient client(server.port());
  EXPECT_EQ(client.post(kChat, kAsk).status, 200);
  const RawResponse response = client.get("/metrics");
  EXPECT_TRUE(response.headers.at("content-type").starts_with("text/plain; version=0.0.4"));
  for (const char* name :
       {"vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc",
        "vllm:prompt_tokens_total", "vllm:generation_tokens_total", "nibble:draft_tokens_total",
        "nibble:draft_tokens_accepted_total", "nibble:requests_cancelled_total",
        "vllm:prefix_cache_hits_total", "vllm:num_preemptions_total", "nibble:step_seconds_total",
        "nibble:scheduler_seconds_total", "nibble:snapshots", "nibble:snapshot_bytes"})
    EXPECT_NE(response.body.find("\n" + std::string(name) + "{model_name=\"tiny\"} "),
              std::string::npos)
        << name;
  for (const char* owner : {"free", "sequences", "prefix_cache", "host"})
    EXPECT_NE(response.body.find("\nnibble:pages{model_name=\"tiny\",pool=\"kv\",owner=\"" +
                                 std::string(owner) + "\"} "),
              std::string::npos)
        << owner;
  for (const char* name : {"vllm:time_to_first_token_seconds", "vllm:inter_token_latency_seconds"})
    for (const char* part : {"_bucket{model_name=\"tiny\",le=\"+Inf\"} ",
                             "_count{model_name=\"tiny\"} ", "_sum{model_name=\"tiny\"} "})
      EXPECT_NE(response.body.find(std::string(name) + part), std::string::npos) << name << part;
  const int tokens = static_cast<int>(script_ids("Hello!").size());
  EXPECT_EQ(metric(server, "vllm:generation_tokens_total"), tokens);
  EXPECT_EQ(metric(server, "vllm:time_to_first_token_seconds_count"), 1);
  EXPECT_EQ(metric(server, "vllm:inter_token_latency_seconds_count"), tokens - 1);
}

}  // namespace
}  // namespace nibble::api::testing
