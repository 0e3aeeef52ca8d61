#include "ops/cpu/isa.h"

namespace nibble::ops::cpu {

Isa detect_isa() {
#if defined(__x86_64__)
  // F16C came before AVX2 in every processor; clang 14 cannot be asked for it.
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return Isa::kAvx2;
#endif
  return Isa::kPortable;
}

}  // namespace nibble::ops::cpu
