// Inverse frequencies of the two rotary tables (deepseek-v4.md 3.2).
#pragma once

#include <vector>

#include "model/config.h"

namespace nibble::model {

// [rope_dim / 2] fp32: theta^(-2i/rope_dim), blended with its YaRN-stretched form where the config
// asks for it. Power and reciprocal are taken in fp32, which is what makes the table equal to the
// published implementation's bit for bit.
std::vector<float> inverse_frequencies(const RopeConfig& rope, int rope_dim);

}  // namespace nibble::model
