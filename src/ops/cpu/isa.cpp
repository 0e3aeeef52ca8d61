#include "ops/cpu/isa.h"

namespace nibble::ops::cpu {

Isa detect_isa() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("f16c"))
    return Isa::kAvx2;
#endif
  return Isa::kPortable;
}

}  // namespace nibble::ops::cpu
