// The subcommands. Each adds its own parser to the application and says what runs when it was chosen; main.cpp lists them.
#pragma once

#include <CLI/CLI.hpp>

#include <functional>
#include <string>

#include "cli/options.h"

namespace nibble::cli {

struct Command {
  CLI::App* parser;          // knows whether it was chosen; owned by the application
  std::function<int()> run;  // after parsing: a process exit code, or throws nibble::Error
};

Command add_serve(CLI::App& app);
Command add_run(CLI::App& app);
Command add_audit(CLI::App& app);
Command add_inspect(CLI::App& app);
Command add_pull(CLI::App& app);
Command add_plan(CLI::App& app);
Command add_convert(CLI::App& app);
Command add_bench(CLI::App& app);

// Flags of every command that loads a model.
void add_model_options(CLI::App& command, ModelOptions& model, std::string& log_level);

}  // namespace nibble::cli
