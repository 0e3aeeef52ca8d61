// The real server on a free loopback port, in this process, with a scripted engine and tiny's tokenizer and encoder.
#pragma once

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "api/server.h"
#include "api/testing/scripted_engine.h"

namespace nibble::api::testing {

// tiny's own tokenizer and chat encoder, loaded once.
const text::Tokenizer& tiny_tokenizer();
std::unique_ptr<ServedModel> make_model(std::unique_ptr<Engine> engine, bool with_encoder = true);
ModelInfo test_model_info();  // tiny's vocabulary, a context of 4096 tokens

// Text to ids with control strings recognised; "<eos>" at the end becomes the end-of-sequence token.
std::vector<TokenId> script_ids(const std::string& text);

struct TestServerOptions {
  ScriptedOptions engine;  // info is filled in
  ServerOptions server;    // port and model_name are filled in
  bool with_encoder = true;
  int context = 4096;  // tokens
  // When valid, loading waits for it.
  std::shared_future<void> gate;
};

// Answers that do not end by themselves: a token every 0.2 ms, up to 200,000.
TestServerOptions endless();

// Whether the condition holds within 20 s.
bool eventually(const std::function<bool()>& condition);

class TestServer {
 public:
  explicit TestServer(TestServerOptions options);
  // Every request is answered with this text.
  explicit TestServer(const std::string& answer);
  ~TestServer();

  int port() const { return server_->port(); }
  ScriptedEngine& engine() { return *engine_; }
  Server& server() { return *server_; }
  void wait_ready();
  bool ready() const { return ready_; }
  // Waits for run() to return.
  void join();

 private:
  std::unique_ptr<Server> server_;
  std::atomic<ScriptedEngine*> engine_{nullptr};
  std::atomic<bool> ready_{false};
  std::thread thread_;
};

}  // namespace nibble::api::testing
