#include "ops/cuda/sm90/quantize.h"

#include "ops/cuda/sm90/launch.h"

namespace nibble::ops::cuda::sm90 {
namespace {

constexpr int kThreads = 256;

// A warp a group of 128 columns.
__global__ void __launch_bounds__(kThreads)
    fp8_rows_kernel(const float* x, std::int64_t groups, std::byte* codes, float* scales) {
#ifdef NIBBLE_SM90
  wait_for_predecessor();
  let_successor_start();
  const std::int64_t group =
      (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / kWarp;
  if (group >= groups) return;
  const int lane = threadIdx.x % kWarp;
  const Fp8Columns q = Fp8Columns::of(*reinterpret_cast<const float4*>(x + group * 128 + lane * 4));
  *reinterpret_cast<std::uint32_t*>(codes + group * 128 + q.chunk() * 16 + q.offset()) = q.codes;
  if (lane == 0) scales[group] = q.scale;
#endif
}

std::int64_t code_bytes(std::int64_t n, std::int64_t cols) {
  return (n * cols + 255) / 256 * 256;
}

}  // namespace

std::int64_t fp8_rows_bytes(std::int64_t n, std::int64_t cols) {
  return code_bytes(n, cols) + n * cols / 128 * static_cast<std::int64_t>(sizeof(float));
}

Fp8Rows launch_fp8_rows(const float* x, std::int64_t n, std::int64_t cols, std::byte* workspace,
                        cudaStream_t stream) {
  auto* scales = reinterpret_cast<float*>(workspace + code_bytes(n, cols));
  const std::int64_t groups = n * cols / 128;
  launch_dependent(fp8_rows_kernel, static_cast<int>((groups * kWarp + kThreads - 1) / kThreads),
                   kThreads, 0, stream, x, groups, workspace, scales);
  return {workspace, scales, cols};
}

}  // namespace nibble::ops::cuda::sm90
