#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "ops/cpu/kernel_tables.h"
#include "quant/bf16.h"
#include "quant/fp8_block.h"
#include "quant/int4.h"
#include "quant/mxfp4.h"

// Only what is defined between here and the end is compiled for AVX2: everything included above
// stays runnable on any x86-64, also where the linker keeps this file's copy of an inline function.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif

namespace nibble::ops::cpu {
namespace {

#include "ops/cpu/simd_avx2.h"
//
#include "ops/cpu/kernels_body.h"

}  // namespace

const Kernels& avx2_kernels() {
  static constexpr Kernels kTable = table("AVX2", true);
  return kTable;
}

}  // namespace nibble::ops::cpu

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif
