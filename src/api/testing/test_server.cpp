#include "api/testing/test_server.h"

#include <chrono>
#include <utility>

#include "text/encoder_profile.h"

namespace nibble::api::testing {
namespace {

const std::string kTinyFolder = NIBBLE_SOURCE_DIR "/models/tiny";

TestServerOptions answering(const std::string& answer) {
  TestServerOptions options;
  options.engine.script = [ids = script_ids(answer)](const Request&) { return ids; };
  return options;
}

}  // namespace

const text::Tokenizer& tiny_tokenizer() {
  static const text::Tokenizer tokenizer = text::Tokenizer::load(kTinyFolder + "/tokenizer.json");
  return tokenizer;
}

std::unique_ptr<ServedModel> make_model(std::unique_ptr<Engine> engine, bool with_encoder) {
  auto model = std::make_unique<ServedModel>();
  model->tokenizer =
      std::make_unique<text::Tokenizer>(text::Tokenizer::load(kTinyFolder + "/tokenizer.json"));
  model->encoder_note = "no encoder in this test";
  if (with_encoder)
    model->encoder = std::make_unique<text::ChatEncoder>(
        *model->tokenizer, text::find_encoder(kTinyFolder).profile.value());
  model->defaults.sampling.temperature = 0.0f;
  model->engine = std::move(engine);
  return model;
}

ModelInfo test_model_info() {
  ModelInfo info;
  info.name = "tiny";
  info.vocab_size = tiny_tokenizer().vocab_size();
  info.max_model_len = 4096;
  info.bos_token = tiny_tokenizer().id_of("<｜begin▁of▁sentence｜>").value();
  info.eos_token = tiny_tokenizer().id_of("<｜end▁of▁sentence｜>").value();
  info.fingerprint = "fp_test";
  return info;
}

std::vector<TokenId> script_ids(const std::string& text) {
  constexpr std::string_view kEnd = "<eos>";
  const bool ends = text.ends_with(kEnd);
  std::vector<TokenId> ids =
      tiny_tokenizer().encode_with_control(text.substr(0, text.size() - (ends ? kEnd.size() : 0)));
  if (ends) ids.push_back(test_model_info().eos_token);
  return ids;
}

TestServer::TestServer(const std::string& answer) : TestServer(answering(answer)) {}

TestServerOptions endless() {
  TestServerOptions options;
  options.context = 1000000;
  options.engine.script = [](const Request&) {
    return std::vector<TokenId>(200000, script_ids("a")[0]);
  };
  options.engine.step_time = std::chrono::microseconds(200);
  options.server.tick = std::chrono::milliseconds(20);
  return options;
}

bool eventually(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

TestServer::TestServer(TestServerOptions options) {
  options.server.port = 0;
  options.server.service.model_name = "tiny";
  options.engine.info = test_model_info();
  options.engine.info.max_model_len = options.context;
  const bool gated = options.gate.valid();
  server_ = std::make_unique<Server>(options.server);
  const auto load = [this, engine = options.engine, encoder = options.with_encoder,
                     gate = options.gate](const LoadProgress& progress) {
    progress(0.25);
    while (gate.valid() && gate.wait_for(std::chrono::milliseconds(5)) != std::future_status::ready)
      progress(0.5);
    auto scripted = std::make_unique<ScriptedEngine>(engine);
    engine_ = scripted.get();
    return make_model(std::move(scripted), encoder);
  };
  thread_ = std::thread([this, load] {
    server_->run(load, {.ready = [this](const ServedModel&) { ready_ = true; }, .leave = {}});
  });
  if (!gated) wait_ready();
}

TestServer::~TestServer() {
  if (!thread_.joinable()) return;
  server_->stop();
  server_->stop();
  join();
}

void TestServer::wait_ready() {
  while (!ready_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

void TestServer::join() {
  if (thread_.joinable()) thread_.join();
}

}  // namespace nibble::api::testing
