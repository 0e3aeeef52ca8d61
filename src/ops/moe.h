// Mixture of experts: routing, and the routed plus the shared experts (deepseek-v4.md 4).
#pragma once

#include <span>

#include "nibble/types.h"
#include "ops/matrix.h"
#include "tensor/view.h"

namespace nibble::ops {

// s = sqrt(softplus(gate . x)), fp32. Experts: the k largest of s + bias (ties to the lower id), or row
// ids[n] of the hash table; listed in ascending order of id, which is the order of every later sum.
// weight = s[expert] / sum of the chosen s * scaling.
struct RouteArgs {
  tensor::View x;                // [n, D]
  Matrix gate;                   // [E, D]
  tensor::View bias;             // [E] F32; empty: hash routing
  tensor::View hash_table;       // I32 [vocab, k]; empty: score routing
  std::span<const TokenId> ids;  // [n]; may be empty without hash routing
  float scaling = 1.0f;
  tensor::View experts;  // out I32 [n, k]
  tensor::View weights;  // out F32 [n, k]
};

// One expert: y = w2 (silu(min(w1 x, limit)) * clamp(w3 x, -limit, limit)).
struct ExpertWeights {
  Matrix w1;  // gate [I, D]
  Matrix w3;  // up   [I, D]
  Matrix w2;  // down [D, I]
};

// y[n] = sum_j weights[n][j] * expert[experts[n][j]](x[n]) + shared(x[n]); the sum runs over j in
// order, the shared expert last, in fp32. Release: x is FP8-quantised; w1 x and w3 x are rounded to
// bf16; the routing weight multiplies the product before it is rounded to bf16 and FP8-quantised
// for w2; each expert's output is rounded to bf16, then the sum. A matrix whose format does not take FP8
// (quant::FormatTraits::fp8_activations) has its input in bf16 instead; each of the three by its own format.
struct RoutedExpertsArgs {
  tensor::View x;                         // [n, D]
  tensor::View experts;                   // I32 [n, k]
  tensor::View weights;                   // F32 [n, k]
  std::span<const ExpertWeights> routed;  // [E]
  ExpertWeights shared;
  float limit = 0.0f;
  tensor::View y;  // out [n, D]
};

}  // namespace nibble::ops
