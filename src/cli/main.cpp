// The command line: parses, then runs the chosen subcommand. Exit codes: include/nibble/status.h.
#include <CLI/CLI.hpp>

#include <array>
#include <iostream>

#include "cli/commands.h"
#include "nibble/status.h"

namespace nibble::cli {
namespace {

int dispatch(int argc, char** argv) {
  CLI::App app("nibble: an inference server for mixture-of-experts models with 4-bit weights",
               "nibble");
  app.set_version_flag("--version", std::string("nibble ") + NIBBLE_VERSION);
  app.require_subcommand(1);
  const std::array commands{
      add_serve(app), add_run(app),  add_audit(app),   add_inspect(app),
      add_pull(app),  add_plan(app), add_convert(app), add_bench(app),
  };
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::CallForVersion& version) {
    return app.exit(version);
  } catch (const CLI::ParseError& error) {
    app.exit(error);
    return static_cast<int>(ExitCode::kUsage);
  }
  for (const Command& command : commands)
    if (command.parser->parsed()) return command.run();
  return static_cast<int>(ExitCode::kUsage);  // require_subcommand(1) has seen to it
}

}  // namespace
}  // namespace nibble::cli

int main(int argc, char** argv) {
  try {
    return nibble::cli::dispatch(argc, argv);
  } catch (const nibble::Error& error) {
    std::cerr << "nibble: " << error.what() << "\n";
    return static_cast<int>(error.exit_code());
  } catch (const std::exception& error) {
    std::cerr << "nibble: " << error.what() << "\n";
    return static_cast<int>(nibble::ExitCode::kFailed);
  }
}
