#include "ops/host_memory.h"

#include <cstring>
#include <utility>

#include "base/check.h"

namespace nibble::ops {

tensor::View HostMemory::allocate(tensor::DType dtype, const tensor::Shape& shape) {
  buffers_.emplace_back(shape.elements() * tensor::dtype_bytes(dtype));
  return {buffers_.back().data(), dtype, shape};
}

tensor::View HostMemory::copy(const void* values, std::int64_t count, tensor::DType dtype,
                              const tensor::Shape& shape) {
  NIBBLE_CHECK(count == shape.elements(), "{} values for {}", count, shape.to_string());
  const tensor::View view = allocate(dtype, shape);
  if (count > 0) std::memcpy(view.data, values, static_cast<std::size_t>(view.bytes()));
  return view;
}

tensor::View HostMemory::upload(std::span<const float> values, const tensor::Shape& shape) {
  return copy(values.data(), static_cast<std::int64_t>(values.size()), tensor::DType::kF32, shape);
}

tensor::View HostMemory::upload(std::span<const std::int32_t> values, const tensor::Shape& shape) {
  return copy(values.data(), static_cast<std::int64_t>(values.size()), tensor::DType::kI32, shape);
}

Matrix HostMemory::keep(quant::HostMatrix matrix) {
  matrices_.push_back(std::move(matrix));
  const quant::HostMatrix& kept = matrices_.back();
  return {kept.format,        kept.rows,        kept.cols,        kept.data.data(),
          kept.scales.data(), kept.scale_dtype, kept.global_scale};
}

void HostMemory::download(const tensor::View& view, std::span<std::byte> host) {
  NIBBLE_CHECK(static_cast<std::int64_t>(host.size()) == view.bytes(), "{} bytes for {}",
               host.size(), view.shape.to_string());
  if (!host.empty()) std::memcpy(host.data(), view.data, host.size());
}

}  // namespace nibble::ops
