// Embedding, norm, matrices: contracts checked, then the launch.
#include <algorithm>

#include "base/check.h"
#include "ops/cuda/cuda_backend.h"
#include "ops/cuda/kernels.h"

namespace nibble::ops::cuda {
void CudaBackend::embed(const EmbedArgs& a) {
  const auto n = static_cast<std::int64_t>(a.ids.size());
  check_shape(a.streams, {n, a.streams.shape[1], a.streams.shape[2]}, "embed.streams");
  for (const TokenId id : a.ids)
    NIBBLE_CHECK((id >= 0 && id < a.table.rows) || id == kPaddingId, "token id {} of {}", id,
                 a.table.rows);
  if (n == 0) return;
  launch_embed(copies_.get(a.ids), n, a.table, a.streams.f32(),
               static_cast<int>(a.streams.shape[1]), static_cast<int>(a.streams.shape[2]), stream_);
}

void CudaBackend::rms_norm(const RmsNormArgs& a) {
  const std::int64_t n = a.x.shape[0], d = a.x.shape[1];
  check_shape(a.y, {n, d}, "rms_norm.y");
  check_shape(a.weight, {d}, "rms_norm.weight");
  if (n == 0) return;
  launch_rms_norm(a.x.f32(), n, a.weight.f32(), static_cast<int>(d), a.eps, numerics().release,
                  a.y.f32(), stream_);
}

const float* CudaBackend::fp8_rounded(const float* x, std::int64_t n, std::int64_t d) {
  float* out = rounded_.get<float>(n * d);
  launch_fp8_round(x, n, d, out, stream_);
  return out;
}

void CudaBackend::stream_linear(const float* x, std::int64_t n, const Matrix& weight, int groups,
                                float* y, bool fp8_input, bool round_output) {
  auto* workspace = linear_workspace_.get<std::byte>(linear_workspace_bytes(weight, fp8_input, n));
  launch_streamed_linear({x, weight, groups, y, fp8_input, round_output, workspace}, n, stream_);
}

void CudaBackend::linear(const LinearArgs& a) {
  const std::int64_t n = a.x.shape[0];
  check_shape(a.x, {n, a.weight.cols}, "linear.x");
  check_shape(a.y, {n, a.weight.rows}, "linear.y");
  if (n == 0 || a.weight.rows == 0) return;
  const bool quantize =
      numerics().release && a.quantize_input && quant::traits(a.weight.format).fp8_activations;
  if (numerics().release && streams_linear(a.weight, 1)) {
    stream_linear(a.x.f32(), n, a.weight, 1, a.y.f32(), quantize, a.round_output);
    return;
  }
  launch_linear(quantize ? fp8_rounded(a.x.f32(), n, a.weight.cols) : a.x.f32(), n, a.weight, 1,
                a.y.f32(), numerics().release && a.round_output, stream_);
}

void CudaBackend::grouped_linear(const GroupedLinearArgs& a) {
  const std::int64_t n = a.x.shape[0];
  NIBBLE_CHECK(a.groups >= 1 && a.weight.rows % a.groups == 0, "rows {} groups {}", a.weight.rows,
               a.groups);
  check_shape(a.x, {n, a.groups * a.weight.cols}, "grouped_linear.x");
  check_shape(a.y, {n, a.weight.rows}, "grouped_linear.y");
  if (n == 0 || a.weight.rows == 0) return;
  if (numerics().release && streams_linear(a.weight, a.groups)) {
    stream_linear(a.x.f32(), n, a.weight, a.groups, a.y.f32(), false, true);
    return;
  }
  launch_linear(a.x.f32(), n, a.weight, a.groups, a.y.f32(), numerics().release, stream_);
}

void CudaBackend::argmax_rows(const ArgmaxRowsArgs& a) {
  const std::int64_t n = a.x.shape[0], width = a.x.shape[1];
  check_shape(a.best, {n}, "argmax.best");
  NIBBLE_CHECK(width > 0, "rows of nothing");
  if (n == 0) return;
  launch_argmax_rows(a.x.f32(), n, width, a.best.i32(), stream_);
}

void CudaBackend::stream_add(const StreamAddArgs& a) {
  const std::int64_t n = a.streams.shape[0], hc = a.streams.shape[1], d = a.streams.shape[2];
  check_shape(a.e, {n, d}, "stream_add.e");
  if (n == 0) return;
  launch_stream_add(a.e.f32(), n, a.streams.f32(), static_cast<int>(hc), static_cast<int>(d),
                    numerics().release, stream_);
}

}  // namespace nibble::ops::cuda
