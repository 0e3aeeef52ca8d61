// The command line: parses, then calls the subcommand's own file. Exit codes: include/nibble/status.h.
#include <CLI/CLI.hpp>

#include <iostream>
#include <map>

#include "base/log.h"
#include "cli/foreign_flags.h"
#include "cli/model_path.h"
#include "cli/options.h"
#include "nibble/status.h"

namespace nibble::cli {
namespace {

const std::map<std::string, DeviceKind> kDevices = {
    {"auto", DeviceKind::kAuto}, {"ref", DeviceKind::kRef}, {"cpu", DeviceKind::kCpu}};
const std::map<std::string, Activations> kActivations = {{"auto", Activations::kAuto},
                                                         {"exact", Activations::kExact},
                                                         {"release", Activations::kRelease}};
const std::map<std::string, KvDtype> kKvDtypes = {{"auto", KvDtype::kAuto},
                                                  {"fp32", KvDtype::kFp32},
                                                  {"bf16", KvDtype::kBf16},
                                                  {"fp8", KvDtype::kFp8}};
const std::map<std::string, bool> kSwitch = {{"on", true}, {"off", false}};

template <typename T>
void add_choice(CLI::App& command, const std::string& names, T& value,
                const std::map<std::string, T>& choices, const std::string& text) {
  std::string words;
  for (const auto& [word, unused] : choices) words += (words.empty() ? "" : "|") + word;
  command.add_option(names, value, text)
      ->transform(CLI::Transformer(choices, CLI::ignore_case))
      ->option_text(words);
}

void add_model_options(CLI::App& command, ModelOptions& model, std::string& log_level) {
  EngineOptions& engine = model.engine;
  add_choice(command, "--device", engine.device, kDevices,
             "where the model runs; ref is the slow, readable specification");
  add_choice(command, "--activations", engine.activations, kActivations,
             "what is rounded besides the weights; auto: release where the config names an "
             "activation scheme");
  add_choice(command, "--kv-dtype", engine.kv_dtype, kKvDtypes,
             "how cached rows are stored; auto: fp32 with exact, else fp8");
  add_choice(command, "--draft", engine.draft, kSwitch,
             "draft with the checkpoint's MTP block (default on; never changes an answer)");
  command.add_option("--threads", engine.threads, "CPU threads (default: one a core)")
      ->check(CLI::Range(1, 1024));
  command
      .add_option("--max-model-len,--context-length", engine.max_model_len,
                  "tokens a sequence may have, prompt and answer")
      ->check(CLI::Range(1, 1 << 24));
  command.add_option("--encoder", model.encoder, "chat grammar for a checkpoint that brings none")
      ->check(CLI::IsMember({"preview", "0731"}));
  command.add_option("--log-level", log_level, "debug, info, warn, error or off")
      ->check(CLI::IsMember({"debug", "info", "warn", "error", "off"}));
  accept_foreign_flags(command);
}

int dispatch(int argc, char** argv) {
  CLI::App app("nibble: an inference server for mixture-of-experts models with 4-bit weights",
               "nibble");
  app.set_version_flag("--version", std::string("nibble ") + NIBBLE_VERSION);
  app.require_subcommand(1);

  ServeOptions serve_options;
  std::string serve_log = "info";
  CLI::App* serve_command =
      app.add_subcommand("serve", "OpenAI-compatible server, with a chat page at /");
  serve_command->add_option("MODEL", serve_options.model.model,
                            "a folder, OWNER/NAME in the hub cache, or tiny (the default)");
  serve_command->add_option("--host", serve_options.host,
                            "address to listen on (default 127.0.0.1)");
  serve_command->add_option("--port", serve_options.port, "port (default 8000; 0: any free one)")
      ->check(CLI::Range(0, 65535));
  serve_command->add_option("--served-model-name", serve_options.served_model_name,
                            "name of the model in requests");
  serve_command->add_option("--api-key", serve_options.api_key, "require this bearer key")
      ->envname("NIBBLE_API_KEY");
  serve_command
      ->add_option("--drain-seconds", serve_options.drain_s,
                   "how long a stop waits for running requests (default 30)")
      ->check(CLI::Range(0, 86400));
  serve_command
      ->add_option("--max-queue", serve_options.model.engine.max_waiting,
                   "requests that may wait (default 256); one more gets 429")
      ->check(CLI::Range(1, 1 << 20));
  add_model_options(*serve_command, serve_options.model, serve_log);

  RunOptions run_options;
  std::vector<std::string> words;
  std::string run_log = "warn";
  CLI::App* run_command = app.add_subcommand("run", "one answer, or a chat in the terminal");
  run_command
      ->add_option("MODEL TEXT", words,
                   "model and text; one word alone is the model if there is such a model")
      ->expected(0, 2);
  run_command
      ->add_option("--temperature", run_options.temperature,
                   "0: greedy (default: the checkpoint's)")
      ->check(CLI::Range(0.0, 100.0));
  run_command->add_option("--max-tokens", run_options.max_tokens, "longest answer")
      ->check(CLI::Range(1, 1 << 24));
  run_command->add_option("--seed", run_options.seed, "same seed, same answer");
  run_command->add_flag("--thinking", run_options.thinking,
                        "let the model think first (thoughts go to stderr)");
  add_model_options(*run_command, run_options.model, run_log);

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
  if (serve_command->parsed()) {
    init_log(serve_log);
    return serve(serve_options);
  }
  init_log(run_log);
  if (words.size() == 1 && !names_model(words[0]))
    words.insert(words.begin(), run_options.model.model);
  if (!words.empty()) run_options.model.model = words[0];
  if (words.size() == 2) run_options.text = words[1];
  return run(run_options);
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
