// What a checkpoint's generation_config.json says about sampling.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "nibble/types.h"

namespace nibble::api {

struct GenerationDefaults {
  // temperature (0 when do_sample is false), top_p, top_k, min_p and repetition_penalty; the rest is neutral.
  SamplingParams sampling;
  std::vector<std::string>
      notes;  // keys that would change answers and are not followed, one line each for the log
};

// A missing file gives the values above. Throws CheckpointError, naming the key, for a file that is no JSON object or
// holds a value out of range.
GenerationDefaults read_generation_defaults(const std::filesystem::path& model_dir);

}  // namespace nibble::api
