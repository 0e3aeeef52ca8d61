// What the command line says, typed. Parsed in main.cpp, used by a file a subcommand.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "nibble/engine.h"

namespace nibble::cli {

// Flags that `serve` and `run` share.
struct ModelOptions {
  std::string model = "tiny";
  EngineOptions engine;  // model_dir is filled by load_served_model
  std::string encoder;   // "", "preview" or "0731"
};

struct ServeOptions {
  ModelOptions model;
  std::string host = "127.0.0.1";
  int port = 8000;
  std::string served_model_name;  // "": the model folder's name
  std::string api_key;
  int drain_s = 30;
};

struct RunOptions {
  ModelOptions model;
  std::optional<std::string> text;  // nothing: standard input, or a chat on a terminal
  std::optional<float> temperature;
  std::optional<std::uint64_t> seed;
  int max_tokens = 0;  // 0: as many as the context holds
  bool thinking = false;
};

// Both return a process exit code; errors are thrown as nibble::Error.
int serve(const ServeOptions& options);
int run(const RunOptions& options);

}  // namespace nibble::cli
