// Launching the Hopper kernels; host code of device files.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "ops/cuda/cuda_error.h"

namespace nibble::ops::cuda::sm90 {

inline constexpr int kMostShared = 232448;  // dynamic shared memory a block can have on sm_90

// Of the current device.
inline int sm_count() {
  static const int count = [] {
    int device = 0, value = 0;
    NIBBLE_CUDA(cudaGetDevice(&device));
    NIBBLE_CUDA(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, device));
    return value;
  }();
  return count;
}

// Programmatic dependent launch: the kernel may start while its predecessor still runs, and waits for it itself. `blocks` is a
// multiple of `cluster`.
template <typename... Params, typename... Args>
void launch_clusters(void (*kernel)(Params...), int cluster, int blocks, int threads,
                     std::size_t shared, cudaStream_t stream, Args&&... args) {
  if (shared > 48 * 1024)
    NIBBLE_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(shared)));
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = cluster > 1 ? 2 : 1;
  NIBBLE_CUDA(cudaLaunchKernelEx(&config, kernel, Params(std::forward<Args>(args))...));
}

template <typename... Params, typename... Args>
void launch_dependent(void (*kernel)(Params...), int blocks, int threads, std::size_t shared,
                      cudaStream_t stream, Args&&... args) {
  launch_clusters(kernel, 1, blocks, threads, shared, stream, std::forward<Args>(args)...);
}

}  // namespace nibble::ops::cuda::sm90
