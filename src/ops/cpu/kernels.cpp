#include "ops/cpu/kernels.h"

#include "base/check.h"
#include "ops/cpu/kernel_tables.h"

namespace nibble::ops::cpu {

const Kernels& kernels(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx2) {
    NIBBLE_CHECK(detect_isa() == Isa::kAvx2, "this processor has no AVX2");
    return avx2_kernels();
  }
#endif
  NIBBLE_CHECK(isa == Isa::kPortable, "isa {}", static_cast<int>(isa));
  return portable_kernels();
}

}  // namespace nibble::ops::cpu
