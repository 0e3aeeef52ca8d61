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

namespace nibble::ops::cpu {
namespace {

#include "ops/cpu/simd_portable.h"
//
#include "ops/cpu/kernels_body.h"

}  // namespace

const Kernels& portable_kernels() {
  static constexpr Kernels kTable = table("portable", false);
  return kTable;
}

}  // namespace nibble::ops::cpu
