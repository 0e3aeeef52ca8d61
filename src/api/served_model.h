// A loaded model with everything a request needs besides the engine.
#pragma once

#include <memory>
#include <string>

#include "api/generation_defaults.h"
#include "nibble/engine.h"
#include "text/chat_encoder.h"

namespace nibble::api {

// Everything but `engine` is immutable and may be read from any thread.
struct ServedModel {
  std::unique_ptr<text::Tokenizer> tokenizer;
  std::unique_ptr<text::ChatEncoder> encoder;  // null: chat is answered with 400 and `encoder_note`
  std::string encoder_note;
  GenerationDefaults defaults;
  std::unique_ptr<Engine> engine;  // last, so that it goes first
};

}  // namespace nibble::api
