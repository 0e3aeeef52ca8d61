// What this machine can do at most, measured with the threads of the run: the floor that every line
// of a benchmark is compared with.
#pragma once

#include <cstdint>

#include "base/thread_pool.h"

namespace nibble::bench {

struct Ceilings {
  double read_bytes_per_s = 0.0;  // reading a buffer of `buffer_bytes` again and again
  double flops = 0.0;             // fp32 fused multiply-adds in registers, two FLOPs each
};

// The best of many short runs.
Ceilings measure_ceilings(ThreadPool& pool, std::int64_t buffer_bytes);

}  // namespace nibble::bench
