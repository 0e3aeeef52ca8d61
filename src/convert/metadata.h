// What a converted checkpoint's JSON files say about its quantization: what the publishers of each
// format write (quantization.md 2.2), so that other engines read it too.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "convert/plan.h"

namespace nibble::convert {

// config.json of the result: `source` (the source's, valid JSON) with quantization_config and
// expert_dtype put in place; everything else stays as it is written there. Throws CheckpointError
// beginning with `file` when it cannot be read.
std::string converted_config(std::string_view source, const std::string& file, const Plan& plan);

// hf_quant_config.json, or "" where the format's publishers have none.
std::string hf_quant_config(const Plan& plan);

// model.safetensors.index.json.
std::string shard_index(const Plan& plan);

}  // namespace nibble::convert
