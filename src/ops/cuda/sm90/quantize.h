// Rows rounded to FP8 once, for the kernels of which many blocks read them.
#pragma once

#include <cuda_runtime_api.h>

#include "ops/cuda/sm90/stream.cuh"

namespace nibble::ops::cuda::sm90 {

inline constexpr std::int64_t kMostSelfRounded = 8;  // tokens that the blocks round themselves

std::int64_t fp8_rows_bytes(std::int64_t n, std::int64_t cols);
// x [n, cols], cols a multiple of 128; workspace of fp8_rows_bytes(), 256-byte aligned.
Fp8Rows launch_fp8_rows(const float* x, std::int64_t n, std::int64_t cols, std::byte* workspace,
                        cudaStream_t stream);

}  // namespace nibble::ops::cuda::sm90
