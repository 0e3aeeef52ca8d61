// Memory, copies and names of the reference backend.
#include <utility>

#include "ops/host_copy.h"
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

void RefBackend::save_ranges(std::span<const ByteRange> ranges, std::span<std::byte> host) {
  host::save_ranges(ranges, host);
}

void RefBackend::load_ranges(std::span<const ByteRange> ranges, std::span<const std::byte> host) {
  host::load_ranges(ranges, host);
}

void RefBackend::gather_rows(const GatherRowsArgs& args) {
  host::gather_rows(args);
}

void RefBackend::window_commit(const WindowCommitArgs& args) {
  host::window_commit(args);
}

}  // namespace nibble::ops::ref
