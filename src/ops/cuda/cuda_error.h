// CUDA calls that failed, as nibble::Error; as DeviceLost where CUDA says that this process cannot use the device again.
#pragma once

#include <cuda_runtime_api.h>

namespace nibble::ops::cuda {

// Throws DeviceLost or Error(kFailed) that names the call and CUDA's reason unless `error` is cudaSuccess.
void check(cudaError_t error, const char* call, const char* file, int line);

}  // namespace nibble::ops::cuda

// Every CUDA call goes through this; after a launch: NIBBLE_CUDA(cudaGetLastError()).
#define NIBBLE_CUDA(call) ::nibble::ops::cuda::check((call), #call, __FILE__, __LINE__)
