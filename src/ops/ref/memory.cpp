// Memory and names of the reference backend.
#include <cstring>
#include <utility>

#include "ops/ref/ref_backend.h"

namespace nibble::ops::ref {
namespace {

const char* op_name(OpKind op) {
  switch (op) {
    case OpKind::kEmbed:
      return "embed";
    case OpKind::kLinear:
      return "linear";
    case OpKind::kGroupedLinear:
      return "grouped_linear";
    case OpKind::kHyperConnection:
      return "hc_boundary";
    case OpKind::kAttention:
      return "sparse_attention";
    case OpKind::kIndexer:
      return "index_select";
    case OpKind::kCompressor:
      return "compress";
    case OpKind::kRouter:
      return "route";
    case OpKind::kExperts:
      return "routed_experts";
  }
  return "?";
}

}  // namespace

KernelInfo RefBackend::kernel(OpKind op, quant::Format) const {
  return {std::string("ref.") + op_name(op), "scalar"};
}

tensor::View RefBackend::allocate(tensor::DType dtype, const tensor::Shape& shape) {
  buffers_.emplace_back(shape.elements() * tensor::dtype_bytes(dtype));
  return {buffers_.back().data(), dtype, shape};
}

Matrix RefBackend::upload(quant::HostMatrix matrix) {
  matrices_.push_back(std::move(matrix));
  const quant::HostMatrix& kept = matrices_.back();
  return {kept.format, kept.rows, kept.cols, kept.data.data(),
          kept.scales.size() ? kept.scales.as<std::uint8_t>() : nullptr};
}

tensor::View RefBackend::upload(std::span<const float> values, const tensor::Shape& shape) {
  NIBBLE_CHECK(static_cast<std::int64_t>(values.size()) == shape.elements(), "{} values for {}",
               values.size(), shape.to_string());
  const tensor::View view = allocate(tensor::DType::kF32, shape);
  std::memcpy(view.data, values.data(), values.size_bytes());
  return view;
}

tensor::View RefBackend::upload(std::span<const std::int32_t> values, const tensor::Shape& shape) {
  NIBBLE_CHECK(static_cast<std::int64_t>(values.size()) == shape.elements(), "{} values for {}",
               values.size(), shape.to_string());
  const tensor::View view = allocate(tensor::DType::kI32, shape);
  std::memcpy(view.data, values.data(), values.size_bytes());
  return view;
}

void RefBackend::download(const tensor::View& view, std::span<std::byte> host) {
  NIBBLE_CHECK(static_cast<std::int64_t>(host.size()) == view.bytes(), "{} bytes for {}",
               host.size(), view.shape.to_string());
  std::memcpy(host.data(), view.data, host.size());
}

}  // namespace nibble::ops::ref
