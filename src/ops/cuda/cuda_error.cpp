#include "ops/cuda/cuda_error.h"

#include <fmt/format.h>

#include "nibble/status.h"

namespace nibble::ops::cuda {

void check(cudaError_t error, const char* call, const char* file, int line) {
  if (error == cudaSuccess) return;
  throw Error(ExitCode::kFailed,
              fmt::format("CUDA: {} ({}) in {} at {}:{}", cudaGetErrorString(error),
                          cudaGetErrorName(error), call, file, line));
}

}  // namespace nibble::ops::cuda
