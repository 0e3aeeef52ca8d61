// What a request changes about the model's logits before anything is drawn.
#pragma once

#include <span>
#include <vector>

#include "sample/sampler.h"

namespace nibble::sample {

// Whether `adjust` would leave the row as it is.
bool adjusts(const Draw& draw);

// `out` becomes the logits after draw.allowed, the penalties and logit_bias, in the order sampler.h gives, in
// fp32. Time: a copy of the row, and the distinct tokens seen. kInvalidArgument for a token of logit_bias
// outside the row.
Result<std::monostate> adjust(std::span<const float> logits, const Draw& draw,
                              std::vector<float>& out);

}  // namespace nibble::sample
