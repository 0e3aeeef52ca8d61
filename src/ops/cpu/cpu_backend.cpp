// Memory, copies, names and threads of the CPU backend.
#include "ops/cpu/cpu_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "ops/cpu/panel.h"
#include "ops/host_copy.h"
#include "ops/registry.h"
#include "quant/bf16.h"

namespace nibble::ops::cpu {

CpuBackend::CpuBackend(Numerics numerics, ThreadPool& pool, Isa isa)
    : Backend(numerics), k_(kernels(isa)), pool_(pool) {}

std::string CpuBackend::description() const {
  return fmt::format("cpu ({}, {} thread{})", k_.isa, pool_.size(), pool_.size() == 1 ? "" : "s");
}

KernelInfo CpuBackend::kernel(OpKind op, quant::Format format) const {
  return kernel_info(
      {.op = op, .format = format, .arch = k_.vector ? Arch::kCpuAvx2 : Arch::kCpuPortable});
}

tensor::View CpuBackend::allocate(tensor::DType dtype, const tensor::Shape& shape) {
  return memory_.allocate(dtype, shape);
}

Matrix CpuBackend::upload(quant::HostMatrix matrix) {
  return memory_.keep(pack_panels(matrix));
}

tensor::View CpuBackend::upload(std::span<const float> values, const tensor::Shape& shape) {
  return memory_.upload(values, shape);
}

tensor::View CpuBackend::upload(std::span<const std::int32_t> values, const tensor::Shape& shape) {
  return memory_.upload(values, shape);
}

void CpuBackend::download(const tensor::View& view, std::span<std::byte> host) {
  HostMemory::download(view, host);
}

void CpuBackend::save_ranges(std::span<const ByteRange> ranges, std::span<std::byte> host) {
  host::save_ranges(ranges, host);
}

void CpuBackend::load_ranges(std::span<const ByteRange> ranges, std::span<const std::byte> host) {
  host::load_ranges(ranges, host);
}

void CpuBackend::gather_rows(const GatherRowsArgs& args) {
  host::gather_rows(args);
}

void CpuBackend::window_commit(const WindowCommitArgs& args) {
  host::window_commit(args);
}

void CpuBackend::run_pieces(std::int64_t count, double item_ns, const Body& body) {
  constexpr double kWorthWakingNs = 2500;  // handing a piece to a thread that spins: about 500 ns
  constexpr std::int64_t kPiecesPerThread = 4;
  const auto worth =
      static_cast<std::int64_t>(static_cast<double>(count) * item_ns / kWorthWakingNs);
  const std::int64_t pieces = std::clamp<std::int64_t>(worth, 1, kPiecesPerThread * pool_.size());
  pool_.run(count, std::max<std::int64_t>(1, (count + pieces - 1) / pieces), body);
}

void CpuBackend::norm_row(const float* x, const float* weight, std::int64_t n, float eps,
                          float* y) const {
  const float s = 1.0f / std::sqrt(k_.sum_squares(x, n) / static_cast<float>(n) + eps);
  k_.scale(x, s, weight, n, y);
  if (numerics().release) k_.round_bf16(y, n);
}

void CpuBackend::query_norm_row(float* x, std::int64_t n, float eps) const {
  if (!numerics().release) return norm_row(x, nullptr, n, eps, x);
  using quant::bf16_round;
  const float mean = bf16_round(k_.sum_squares_bf16(x, n) / static_cast<float>(n));
  k_.scale(x, bf16_round(1.0f / std::sqrt(bf16_round(mean + eps))), nullptr, n, x);
  k_.round_bf16(x, n);
}

const float* CpuBackend::rounded_input(const float* x, std::int64_t n, std::int64_t cols,
                                       bool quantize) {
  if (!quantize || !numerics().release) return x;
  float* out = rounded_.get(n * cols);
  parallel(n, 0.3 * static_cast<double>(cols), [&](std::int64_t begin, std::int64_t end) {
    std::copy(x + begin * cols, x + end * cols, out + begin * cols);
    for (std::int64_t t = begin; t < end; ++t) k_.round_fp8(out + t * cols, cols, 128);
  });
  return out;
}

}  // namespace nibble::ops::cpu
