// Which instructions the kernels may use. Chosen once, from the processor that runs the process.
#pragma once

namespace nibble::ops::cpu {

enum class Isa {
  kPortable,  // C++ only
  kAvx2,      // AVX2 + FMA + F16C
};

// The best one that this processor has.
Isa detect_isa();

}  // namespace nibble::ops::cpu
