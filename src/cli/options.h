// What the command line says, typed, where several subcommands share it.
#pragma once

#include <string>

#include "nibble/engine.h"

namespace nibble::cli {

// Flags of every command that loads a model (model_options.cpp).
struct ModelOptions {
  std::string model = "tiny";
  EngineOptions engine;  // model_dir is filled by load_served_model
  std::string encoder;   // "", "preview" or "0731"
};

}  // namespace nibble::cli
