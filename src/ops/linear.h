// Matrix times rows.
#pragma once

#include "ops/matrix.h"
#include "tensor/view.h"

namespace nibble::ops {

// y[n] = weight * x[n], fp32 accumulation in an order that depends on (rows, cols) alone: a row's
// result never depends on n. x and y do not alias. n = 0: nothing.
struct LinearArgs {
  tensor::View x;  // [n, cols]
  Matrix weight;   // [rows, cols]
  tensor::View y;  // out [n, rows]
  // Release only. quantize_input: x is first rounded to FP8 per 128 channels (deepseek-v4.md 6.2) if the
  // weight's format is one that takes FP8 (quant::FormatTraits::fp8_activations); the others take x as it is.
  // round_output: y is rounded to bf16; off for the gate, the compressors and the head, which stay
  // fp32.
  bool quantize_input = false;
  bool round_output = true;
};

// The grouped low-rank output projection (deepseek-v4.md 3.4): row block g of the weight sees only
// channel block g of x:
//   y[n][g * R + r] = sum_i weight[g * R + r][i] * x[n][g * cols + i],  R = weight.rows / groups
struct GroupedLinearArgs {
  tensor::View x;  // [n, groups * cols]
  Matrix weight;   // [groups * R, cols]
  int groups = 1;
  tensor::View y;  // out [n, groups * R]; release: rounded to bf16
};

}  // namespace nibble::ops
