// A weight matrix in the memory and layout of the backend that uploaded it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/matrix_format.h"

namespace nibble::ops {

enum class Layout : std::uint8_t {
  kPublished,
  kTiles,  // an order of the backend's own: ops/cuda/tiles.h
};

// y = W x with W [rows, cols]. Bytes of kPublished, that of the published file:
//   kF32, kBf16                row-major
//   kFp8Block128, kFp8Block32  row-major E4M3, scales [ceil(rows/b), ceil(cols/b)]
//   kMxfp4, kNvfp4, kInt4*     rows of cols/2 bytes (low nibble = even column), scales [rows, cols/group]
// Types of scales, and the rest of the arithmetic: quant/matrix_format.h.
struct Matrix {
  quant::Format format = quant::Format::kF32;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  const void* data = nullptr;
  const std::byte* scales = nullptr;  // null for kF32 and kBf16
  tensor::DType scale_dtype = tensor::DType::kF8E8M0;
  float global_scale = 1.0f;  // kNvfp4: a multiplier
  Layout layout = Layout::kPublished;

  bool empty() const { return data == nullptr; }
};

}  // namespace nibble::ops
