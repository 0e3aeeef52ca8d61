// The tables that kernels() chooses from.
#pragma once

#include "ops/cpu/kernels.h"
#include "quant/e2m1.h"

namespace nibble::ops::cpu {

inline constexpr int kMaxFp4Width = 1024;  // channels of a kFp4Index row

const Kernels& portable_kernels();
#if defined(__x86_64__)
const Kernels& avx2_kernels();  // the processor must have AVX2, FMA and F16C
#endif

}  // namespace nibble::ops::cpu
