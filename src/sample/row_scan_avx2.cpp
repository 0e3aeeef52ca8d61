#if defined(__x86_64__)

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>

#include "sample/row_passes.h"

// Only what follows is compiled for AVX2: what is included above stays runnable on any x86-64, also
// where the linker keeps this file's copy of an inline function.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2")
#endif

namespace nibble::sample {
namespace {

#include "sample/row_scan_body.h"

}  // namespace

const RowPasses& avx2_passes() {
  return kPasses;
}

}  // namespace nibble::sample

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif
