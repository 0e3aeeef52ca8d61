// A failed CUDA call ends an instrument with its place and reason.
#pragma once

#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

#define CUDA_CHECK(call)                                                                       \
  do {                                                                                         \
    const cudaError_t cuda_error = (call);                                                     \
    if (cuda_error != cudaSuccess) {                                                           \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(cuda_error)); \
      std::exit(1);                                                                            \
    }                                                                                          \
  } while (0)
