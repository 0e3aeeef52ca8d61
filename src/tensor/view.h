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
  // Rows [begin, begin + count) of the leading dimension.
  View rows(std::int64_t begin, std::int64_t count) const;
  View first(std::int64_t count) const { return rows(0, count); }
  // The same elements under another shape of as many.
  View reshape(const Shape& to) const;
};

// Stops with both shapes unless they are equal; `what` names the argument.
void check_shape(const View& view, const Shape& expected, const char* what);

}  // namespace nibble::tensor
