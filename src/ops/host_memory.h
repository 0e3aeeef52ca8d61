// The memory of a backend that computes on the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>

#include "ops/matrix.h"
#include "quant/matrix_format.h"
#include "tensor/buffer.h"
#include "tensor/view.h"

namespace nibble::ops {

// Owns what it hands out, for its own life. Used from the engine's thread.
class HostMemory {
 public:
  tensor::View allocate(tensor::DType dtype, const tensor::Shape& shape);  // zero-filled
  tensor::View upload(std::span<const float> values, const tensor::Shape& shape);
  tensor::View upload(std::span<const std::int32_t> values, const tensor::Shape& shape);
  Matrix keep(quant::HostMatrix matrix);
  static void download(const tensor::View& view, std::span<std::byte> host);

 private:
  tensor::View copy(const void* values, std::int64_t count, tensor::DType dtype,
                    const tensor::Shape& shape);

  std::deque<tensor::HostBuffer<std::byte>> buffers_;
  std::deque<quant::HostMatrix> matrices_;
};

}  // namespace nibble::ops
