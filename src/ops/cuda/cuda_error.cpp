#include "ops/cuda/cuda_error.h"

#include <fmt/format.h>

#include "nibble/status.h"

namespace nibble::ops::cuda {

namespace {

// Those after which "any further CUDA work will return the same error", in the words of CUDA's documentation.
bool sticky(cudaError_t error) {
  switch (error) {
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorContextIsDestroyed:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorTensorMemoryLeak:
    case cudaErrorMpsClientTerminated:
      return true;
    default:
      return false;
  }
}

}  // namespace

void check(cudaError_t error, const char* call, const char* file, int line) {
  if (error == cudaSuccess) return;
  const std::string what = fmt::format("CUDA: {} ({}) in {} at {}:{}", cudaGetErrorString(error),
                                       cudaGetErrorName(error), call, file, line);
  if (sticky(error)) throw DeviceLost("the GPU is lost: " + what);
  throw Error(ExitCode::kFailed, what);
}

}  // namespace nibble::ops::cuda
