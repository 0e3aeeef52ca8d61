// `nibble serve`: the OpenAI-compatible server.
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "api/server.h"
#include "base/log.h"
#include "cli/commands.h"
#include "cli/load.h"
#include "cli/model_path.h"
#include "cli/options.h"
#include "cli/progress.h"

namespace nibble::cli {
namespace {

struct ServeOptions {
  ModelOptions model;
  std::string host = "127.0.0.1";
  int port = 8000;
  std::string served_model_name;  // "": the model folder's name
  std::string api_key;
  int drain_s = 30;
};

int serve(const ServeOptions& options) {
  // A wrong name is a usage error before the port opens, not after.
  const ModelPath path = require_model(options.model.model);
  api::ServerOptions server_options;
  server_options.host = options.host;
  server_options.port = options.port;
  server_options.drain_timeout = std::chrono::seconds(options.drain_s);
  server_options.service.api_key = options.api_key;
  server_options.service.model_name =
      options.served_model_name.empty() ? path.name : options.served_model_name;
  api::Server server(server_options);
  spdlog::info("loading {}; {} answers meanwhile with 503", path.folder.string(), server.url());
  api::ServerEvents events;
  events.ready = [&](const api::ServedModel& model) {
    log_model(model);
    spdlog::info("ready: {} serves {} on {}", server.url(), server_options.service.model_name,
                 model.engine->info().device);
  };
  // Threads may be in the middle of a step; there is nothing of theirs to save.
  events.leave = [] { _exit(static_cast<int>(ExitCode::kOk)); };
  const auto load = [&](const api::LoadProgress& report) {
    Progress progress("loading");
    return load_served_model(options.model, [&](double fraction) {
      progress.show(fraction);
      report(fraction);
    });
  };
  server.run(load, events);
  spdlog::info("stopped");
  // Not by returning: taking the server down gives the signals their default action back, and one that comes then would make
  // a clean stop look like a crash.
  events.leave();
  return static_cast<int>(ExitCode::kOk);
}

}  // namespace

Command add_serve(CLI::App& app) {
  struct State {
    ServeOptions options;
    std::string log = "info";
  };
  const auto state = std::make_shared<State>();
  ServeOptions& options = state->options;
  CLI::App* command =
      app.add_subcommand("serve", "OpenAI-compatible server, with a chat page at /");
  command->add_option("MODEL", options.model.model,
                      "a folder, OWNER/NAME in the hub cache, or tiny (the default)");
  command->add_option("--host", options.host, "address to listen on (default 127.0.0.1)");
  command->add_option("--port", options.port, "port (default 8000; 0: any free one)")
      ->check(CLI::Range(0, 65535));
  command->add_option("--served-model-name", options.served_model_name,
                      "name of the model in requests");
  command->add_option("--api-key", options.api_key, "require this bearer key")
      ->envname("NIBBLE_API_KEY");
  command
      ->add_option("--drain-seconds", options.drain_s,
                   "how long a stop waits for running requests (default 30)")
      ->check(CLI::Range(0, 86400));
  command
      ->add_option("--max-queue", options.model.engine.max_waiting,
                   "requests that may wait (default 256); one more gets 429")
      ->check(CLI::Range(1, 1 << 20));
  add_model_options(*command, options.model, state->log);
  return {command, [state] {
            init_log(state->log);
            return serve(state->options);
          }};
}

}  // namespace nibble::cli
