// A weight matrix in the memory and layout of the backend that uploaded it.
#pragma once

#include <cstdint>

#include "quant/matrix_format.h"

namespace nibble::ops {

// y = W x with W [rows, cols]. Layout of the published file unless a backend says otherwise (its
// own upload decides):
//   kF32, kBf16      row-major
//   kFp8Block128     row-major E4M3, scales [ceil(rows/128), ceil(cols/128)] E8M0
//   kMxfp4           rows of cols/2 bytes (low nibble = even column), scales [rows, cols/32] E8M0
struct Matrix {
  quant::Format format = quant::Format::kF32;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  const void* data = nullptr;
  const std::uint8_t* scales = nullptr;  // null for kF32 and kBf16

  bool empty() const { return data == nullptr; }
};

}  // namespace nibble::ops
