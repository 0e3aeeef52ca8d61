// `nibble serve`: the OpenAI-compatible server.
#include <unistd.h>

#include <cstdlib>

#include "api/server.h"
#include "base/log.h"
#include "cli/load.h"
#include "cli/model_path.h"
#include "cli/options.h"
#include "cli/progress.h"

namespace nibble::cli {

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

}  // namespace nibble::cli
