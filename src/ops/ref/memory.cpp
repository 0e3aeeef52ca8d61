// Memory and names of the reference backend.
#include <utility>

#include "ops/ref/ref_backend.h"
#include "ops/registry.h"

namespace nibble::ops::ref {

KernelInfo RefBackend::kernel(OpKind op, quant::Format format) const {
  return kernel_info({.op = op, .format = format, .arch = Arch::kRef});
}

tensor::View RefBackend::allocate(tensor::DType dtype, const tensor::Shape& shape) {
  return memory_.allocate(dtype, shape);
}

Matrix RefBackend::upload(quant::HostMatrix matrix) {
  return memory_.keep(std::move(matrix));
}

tensor::View RefBackend::upload(std::span<const float> values, const tensor::Shape& shape) {
  return memory_.upload(values, shape);
}

tensor::View RefBackend::upload(std::span<const std::int32_t> values, const tensor::Shape& shape) {
  return memory_.upload(values, shape);
}

void RefBackend::download(const tensor::View& view, std::span<std::byte> host) {
  HostMemory::download(view, host);
}

}  // namespace nibble::ops::ref
