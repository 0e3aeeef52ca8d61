// y = x * rsqrt(mean(x^2) + eps) * weight, per row, in fp32.
#pragma once

#include "tensor/view.h"

namespace nibble::ops {

// Release: y is rounded to bf16 once. In place allowed (y.data == x.data).
struct RmsNormArgs {
  tensor::View x;       // [n, D]
  tensor::View weight;  // [D] F32
  float eps = 0.0f;
  tensor::View y;  // out [n, D]
};

}  // namespace nibble::ops
