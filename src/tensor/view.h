// A borrowed, contiguous, row-major array in the memory of the backend that made it.
#pragma once

#include <cstdint>

#include "base/check.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace nibble::tensor {

struct View {
  void* data = nullptr;
  DType dtype = DType::kF32;
  Shape shape;

  bool empty() const { return data == nullptr; }
  std::int64_t bytes() const { return shape.elements() * dtype_bytes(dtype); }
  float* f32() const {
    NIBBLE_CHECK(dtype == DType::kF32, "dtype {}", dtype_name(dtype));
    return static_cast<float*>(data);
  }
  std::int32_t* i32() const {
    NIBBLE_CHECK(dtype == DType::kI32, "dtype {}", dtype_name(dtype));
    return static_cast<std::int32_t*>(data);
  }
  // The first `rows` rows of the leading dimension.
  View first(std::int64_t rows) const;
};

// Stops with both shapes unless they are equal; `what` names the argument.
void check_shape(const View& view, const Shape& expected, const char* what);

}  // namespace nibble::tensor
