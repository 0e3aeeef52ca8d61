// The most likely token of each row, so that logits need not leave the backend for it.
#pragma once

#include <cstdint>

#include "tensor/view.h"

namespace nibble::ops {

// A row that nothing can be chosen from.
inline constexpr std::int32_t kNoBest = -1;

// best[n] = the id of the largest of x[n], the lowest of equals (0 and -0 are equal); kNoBest where the row holds a NaN or its
// largest is not finite. n = 0: nothing.
struct ArgmaxRowsArgs {
  tensor::View x;     // [n, V] F32, V > 0
  tensor::View best;  // out I32 [n]
};

}  // namespace nibble::ops
