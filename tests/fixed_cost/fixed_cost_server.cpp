// A test's server: the real HTTP server and the real scheduler around a decoder that takes a chosen time and computes nothing.
#include <fmt/os.h>
#include <CLI/CLI.hpp>

#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "api/server.h"
#include "base/log.h"
#include "engine/testing/fixed_cost_model.h"
#include "logged_engine.h"
#include "sched/scheduler.h"
#include "text/encoder_profile.h"

namespace nibble::fixed_cost {
namespace {

struct Options {
  std::string tiny = NIBBLE_SOURCE_DIR "/models/tiny";
  api::ServerOptions server;
  EngineOptions engine;
  engine::testing::FixedCostOptions model;
  std::string event_log, step_log;  // files; empty: none
};

struct Step {
  std::int64_t rows = 0;
  double cpu_us = 0.0;
};

// Four letters or blanks each, so that whoever reads the text can count tokens.
std::vector<TokenId> four_letter_tokens(const text::Tokenizer& tokenizer) {
  std::vector<TokenId> ids;
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string_view bytes = tokenizer.token_bytes(id);
    const bool letters = std::all_of(bytes.begin(), bytes.end(),
                                     [](char c) { return c == ' ' || (c >= 'a' && c <= 'z'); });
    if (bytes.size() == 4 && letters && !tokenizer.is_added(id)) ids.push_back(id);
  }
  return ids;
}

int serve(Options options) {
  std::vector<Step> steps;  // the scheduler's thread, until it has ended
  if (!options.step_log.empty()) {
    steps.reserve(1 << 20);
    options.model.on_step = [&](std::int64_t rows, double cpu_us) {
      steps.push_back({rows, cpu_us});
    };
  }
  const LoggedEngine* logged = nullptr;
  const auto load = [&](const api::LoadProgress&) {
    auto model = std::make_unique<api::ServedModel>();
    model->tokenizer =
        std::make_unique<text::Tokenizer>(text::Tokenizer::load(options.tiny + "/tokenizer.json"));
    model->encoder = std::make_unique<text::ChatEncoder>(
        *model->tokenizer, text::find_encoder(options.tiny).profile.value());
    options.model.vocab_size = model->tokenizer->vocab_size();
    options.model.alphabet = four_letter_tokens(*model->tokenizer);
    options.model.eos_token = model->tokenizer->id_of("<｜end▁of▁sentence｜>").value();
    std::unique_ptr<Engine> engine = std::make_unique<sched::Scheduler>(
        std::make_unique<engine::testing::FixedCostModel>(options.model), options.engine);
    if (!options.event_log.empty()) {
      auto wrapped = std::make_unique<LoggedEngine>(std::move(engine));
      logged = wrapped.get();
      engine = std::move(wrapped);
    }
    model->engine = std::move(engine);
    return model;
  };
  {
    api::Server server(options.server);
    api::ServerEvents events;
    events.ready = [&](const api::ServedModel&) { std::cout << server.url() << std::endl; };
    server.run(load, events);
    if (logged) logged->write(options.event_log);
  }
  if (options.step_log.empty()) return 0;
  auto out = fmt::output_file(options.step_log);
  for (const Step& step : steps) out.print("{} {:.2f}\n", step.rows, step.cpu_us);
  return 0;
}

void add_options(CLI::App& app, Options& options) {
  app.add_option("--port", options.server.port, "default 0: any free one; the URL goes to stdout");
  app.add_option("--base-us", options.model.base_us, "of a step");
  app.add_option("--per-row-us", options.model.per_row_us);
  app.add_option("--draft-cost-us", options.model.draft_us, "of a proposed token");
  app.add_option("--acceptance", options.model.acceptance, "share of proposals that are right");
  app.add_option("--max-draft", options.model.limits.max_draft, "0: no drafting");
  app.add_option("--max-num-seqs", options.engine.max_num_seqs);
  app.add_option("--max-model-len", options.model.max_model_len);
  app.add_option("--pages", options.model.limits.pages, "of 256 tokens");
  app.add_option("--max-queue", options.engine.max_waiting);
  app.add_option("--prefill-chunk", options.engine.prefill_chunk);
  app.add_option("--step-budget-ms", options.engine.step_budget_ms);
  app.add_option("--event-log", options.event_log, "when each token left the engine");
  app.add_option("--step-log", options.step_log,
                 "rows of each step, and the scheduler's CPU microseconds before it");
}

}  // namespace
}  // namespace nibble::fixed_cost

int main(int argc, char** argv) {
  using namespace nibble;
  fixed_cost::Options options;
  options.server.port = 0;
  options.server.service.model_name = "fixed-cost";
  options.engine.max_num_seqs = 16;
  options.model.max_model_len = 8192;
  options.model.limits.pages = 4096;
  options.model.base_us = 1000.0;
  CLI::App app("the server around a decoder of fixed cost: for tests and measurements");
  fixed_cost::add_options(app, options);
  CLI11_PARSE(app, argc, argv);
  init_log("warn");
  options.engine.max_model_len = options.model.max_model_len;
  options.model.limits.slots = options.engine.max_num_seqs;
  options.model.limits.max_step_rows =
      options.engine.prefill_chunk +
      options.engine.max_num_seqs * (1 + options.model.limits.max_draft);
  try {
    return fixed_cost::serve(std::move(options));
  } catch (const std::exception& error) {
    std::cerr << "fixed_cost_server: " << error.what() << "\n";
    return 1;
  }
}
