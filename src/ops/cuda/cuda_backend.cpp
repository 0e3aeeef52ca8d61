#include "ops/cuda/cuda_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "nibble/status.h"
#include "ops/cuda/cuda_error.h"
#include "ops/cuda/tiles.h"
#include "ops/op_name.h"

namespace nibble::ops::cuda {
namespace {

constexpr std::size_t kHostCopies = 64;

std::size_t size_of(std::int64_t bytes) {
  return static_cast<std::size_t>(bytes);
}

// Throws with what the user can do about it.
void require_device(int device) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorInsufficientDriver) {
    int driver = 0;
    (void)cudaDriverGetVersion(&driver);
    if (driver == 0)
      throw Error(ExitCode::kFailed, "no NVIDIA driver on this machine; --device cpu needs none");
    throw Error(
        ExitCode::kFailed,
        fmt::format(
            "the NVIDIA driver supports CUDA {}.{}, this binary needs {}.{}: update the driver, "
            "or use --device cpu",
            driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10));
  }
  if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0))
    throw Error(ExitCode::kFailed, "no NVIDIA GPU on this machine; use --device cpu");
  NIBBLE_CUDA(error);
  if (device < 0 || device >= count)
    throw Error(ExitCode::kUsage,
                fmt::format("GPU {} was asked for; this machine has {}", device, count));
}

}  // namespace

int device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    (void)cudaGetLastError();
    return 0;
  }
  return count;
}

CudaBackend::CudaBackend(Numerics numerics, int device, bool graphs)
    : Backend(numerics), use_graphs_(graphs) {
  require_device(device);
  NIBBLE_CUDA(cudaSetDevice(device));
  cudaDeviceProp properties{};
  NIBBLE_CUDA(cudaGetDeviceProperties(&properties, device));
  if (!has_code_for_this_device())
    throw Error(
        ExitCode::kFailed,
        fmt::format(
            "{} has compute capability {}.{}, for which this binary holds no machine code; use "
            "--device cpu",
            properties.name, properties.major, properties.minor));
  NIBBLE_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
#ifdef NIBBLE_CUDA_SM90A
  tiles_ = numerics.release && properties.major == 9 && properties.minor == 0;
#endif
  description_ = fmt::format("cuda ({}, sm_{}{}, {} SMs)", properties.name, properties.major,
                             properties.minor, properties.multiProcessorCount);
}

CudaBackend::~CudaBackend() {
  (void)cudaStreamSynchronize(stream_);
  graphs_.clear();
  (void)cudaStreamDestroy(stream_);
}

KernelInfo CudaBackend::kernel(OpKind op, quant::Format) const {
  return {fmt::format("cuda.{}.plain", op_name(op)), "vector"};
}

KernelInfo CudaBackend::kernel(OpKind op, quant::Format format, std::int64_t rows,
                               std::int64_t cols) const {
  const bool linear =
                 op == OpKind::kLinear || op == OpKind::kGroupedLinear || op == OpKind::kRouter,
             mxfp4 = format == quant::Format::kMxfp4, bf16 = format == quant::Format::kBF16;
  if (!tiles_ || !has_tiles(format, rows, cols) ||
      (linear ? mxfp4 : op != OpKind::kExperts || bf16))
    return kernel(op, format);
  const char* product = bf16                           ? "bf16"
                        : op == OpKind::kGroupedLinear ? "fp8_bf16"
                        : mxfp4                        ? "mxfp4_fp8"
                                                       : "fp8";
  return {fmt::format("cuda.{}.sm90.{}", op_name(op), product), "tensor core"};
}

tensor::View CudaBackend::allocate(tensor::DType dtype, const tensor::Shape& shape) {
  tensor::View view{nullptr, dtype, shape};
  view.data = arena_.allocate(view.bytes());
  NIBBLE_CUDA(cudaMemsetAsync(view.data, 0, size_of(view.bytes()), stream_));
  return view;
}

tensor::View CudaBackend::copy_in(const void* values, std::int64_t count, tensor::DType dtype,
                                  const tensor::Shape& shape) {
  NIBBLE_CHECK(count == shape.elements(), "{} values for shape {}", count, shape.to_string());
  tensor::View view{nullptr, dtype, shape};
  view.data = arena_.allocate(view.bytes());
  // From pageable memory: returns when the values have been read.
  NIBBLE_CUDA(
      cudaMemcpyAsync(view.data, values, size_of(view.bytes()), cudaMemcpyHostToDevice, stream_));
  return view;
}

tensor::View CudaBackend::upload(std::span<const float> values, const tensor::Shape& shape) {
  return copy_in(values.data(), static_cast<std::int64_t>(values.size()), tensor::DType::kF32,
                 shape);
}

tensor::View CudaBackend::upload(std::span<const std::int32_t> values, const tensor::Shape& shape) {
  return copy_in(values.data(), static_cast<std::int64_t>(values.size()), tensor::DType::kI32,
                 shape);
}

Matrix CudaBackend::upload_tiles(const quant::HostMatrix& matrix) {
  const auto copy = [&](std::byte* to, const quant::AlignedBytes& from) {
    NIBBLE_CUDA(cudaMemcpyAsync(to, from.data(), from.size(), cudaMemcpyHostToDevice, stream_));
    return to;
  };
  const auto codes = static_cast<std::int64_t>(matrix.data.size()),
             scales = static_cast<std::int64_t>(matrix.scales.size());
  Matrix out{matrix.format, matrix.rows, matrix.cols};
  out.scale_dtype = matrix.scale_dtype;
  out.data = copy(published_codes_.get<std::byte>(codes), matrix.data);
  out.scales = copy(published_scales_.get<std::byte>(scales), matrix.scales);
  const std::int64_t bytes = tile_bytes(matrix.format, matrix.rows, matrix.cols);
  std::byte* tiles = arena_.allocate(std::max(bytes, codes + scales));
  if (pack_tiles(out, tiles, stream_)) {
    out.layout = Layout::kTiles;
    out.scales = nullptr;
  } else {  // as published, for the plain kernels
    out.scales = copy(tiles + codes, matrix.scales);
    copy(tiles, matrix.data);
  }
  out.data = tiles;
  return out;
}

Matrix CudaBackend::upload(quant::HostMatrix matrix) {
  if (tiles_ && has_tiles(matrix.format, matrix.rows, matrix.cols)) return upload_tiles(matrix);
  Matrix out;
  out.format = matrix.format;
  out.rows = matrix.rows;
  out.cols = matrix.cols;
  out.scale_dtype = matrix.scale_dtype;
  out.global_scale = matrix.global_scale;
  const auto copy = [&](const quant::AlignedBytes& from) {
    std::byte* to = arena_.allocate(static_cast<std::int64_t>(from.size()));
    NIBBLE_CUDA(cudaMemcpyAsync(to, from.data(), from.size(), cudaMemcpyHostToDevice, stream_));
    return to;
  };
  out.data = copy(matrix.data);
  if (matrix.scales.size() > 0) out.scales = copy(matrix.scales);
  return out;
}

void CudaBackend::download(const tensor::View& view, std::span<std::byte> host) {
  NIBBLE_CHECK(static_cast<std::int64_t>(host.size()) == view.bytes(), "{} bytes for a view of {}",
               host.size(), view.bytes());
  NIBBLE_CUDA(
      cudaMemcpyAsync(host.data(), view.data, host.size(), cudaMemcpyDeviceToHost, stream_));
  NIBBLE_CUDA(cudaStreamSynchronize(stream_));
}

const void* CudaBackend::HostCopies::get(const void* data, std::size_t bytes) {
  const auto* begin = static_cast<const std::byte*>(data);
  if (bytes > 0 && known_.size() == bytes && std::memcmp(known_.data(), data, bytes) == 0)
    return known_device_;
  const auto found = std::find_if(copies_.begin(), copies_.end(), [&](const Copy& copy) {
    return copy.host.size() == bytes &&
           (bytes == 0 || std::memcmp(copy.host.data(), data, bytes) == 0);
  });
  if (found != copies_.end()) {
    found->used = ++calls_;
    return found->device->get<std::byte>(static_cast<std::int64_t>(bytes));
  }
  if (copies_.size() < kHostCopies) copies_.push_back({{}, std::make_unique<Scratch>(), 0});
  // The one that has not been asked for the longest: never one that the same op holds.
  Copy& copy = *std::min_element(copies_.begin(), copies_.end(),
                                 [](const Copy& a, const Copy& b) { return a.used < b.used; });
  copy.used = ++calls_;
  copy.host.assign(begin, begin + bytes);
  auto* device = copy.device->get<std::byte>(static_cast<std::int64_t>(bytes));
  // In stream order after the kernels that read what was here before.
  NIBBLE_CUDA(cudaMemcpyAsync(device, copy.host.data(), bytes, cudaMemcpyHostToDevice, stream_));
  return device;
}

bool CudaBackend::in_tiles(const ExpertWeights& e) {
  const auto fits = [&](const Matrix& m) {
    return m.layout == Layout::kTiles && m.format == e.w1.format;
  };
  return fits(e.w1) && fits(e.w3) && fits(e.w2);
}

const CudaBackend::ExpertTable& CudaBackend::expert_table(std::span<const ExpertWeights> experts) {
  NIBBLE_CHECK(!experts.empty(), "no experts");
  ExpertTable& table = expert_tables_[experts[0].w1.data];
  if (table.host.empty()) {
    for (const ExpertWeights& e : experts) table.host.push_back({e.w1, e.w3, e.w2});
    const std::size_t bytes = table.host.size() * sizeof(ExpertMatrices);
    auto* device = arena_.allocate(static_cast<std::int64_t>(bytes));
    NIBBLE_CUDA(cudaMemcpyAsync(device, table.host.data(), bytes, cudaMemcpyHostToDevice, stream_));
    table.device = reinterpret_cast<const ExpertMatrices*>(device);
    table.one_format_in_tiles = std::all_of(experts.begin(), experts.end(), [&](const auto& e) {
      return in_tiles(e) && e.w1.format == experts[0].w1.format;
    });
  }
  NIBBLE_CHECK(
      table.host.size() == experts.size() && table.host.back().w2.data == experts.back().w2.data,
      "two layers share expert weights");
  return table;
}

Pool CudaBackend::device_pool(const RowPool& pool) {
  if (pool.empty()) return {};
  return {pool.data, pool.format, pool.width, pool.rows_per_slot,
          row_bytes(pool.format, pool.width)};
}

Pool CudaBackend::device_pool(const PagedPool& pool) {
  if (pool.empty()) return {};
  return {pool.data, pool.format, pool.width, pool.rows_per_page,
          row_bytes(pool.format, pool.width)};
}

}  // namespace nibble::ops::cuda
