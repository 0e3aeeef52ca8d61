#include "tensor/view.h"

#include <array>
#include <cstddef>

namespace nibble::tensor {

View View::rows(std::int64_t begin, std::int64_t count) const {
  NIBBLE_CHECK(shape.rank() >= 1 && begin >= 0 && count >= 0 && begin + count <= shape[0],
               "rows {}..{} of {}", begin, begin + count, shape.to_string());
  std::array<std::int64_t, Shape::kMaxRank> dims{};
  std::int64_t row_bytes = dtype_bytes(dtype);
  for (int i = 0; i < shape.rank(); ++i) {
    dims[static_cast<std::size_t>(i)] = shape[i];
    if (i > 0) row_bytes *= shape[i];
  }
  dims[0] = count;
  return {
      static_cast<std::byte*>(data) + begin * row_bytes, dtype,
      Shape(std::span<const std::int64_t>(dims.data(), static_cast<std::size_t>(shape.rank())))};
}

View View::reshape(const Shape& to) const {
  NIBBLE_CHECK(to.elements() == shape.elements(), "{} as {}", shape.to_string(), to.to_string());
  return {data, dtype, to};
}

void check_shape(const View& view, const Shape& expected, const char* what) {
  NIBBLE_CHECK(view.shape == expected, "{}: shape {}, expected {}", what, view.shape.to_string(),
               expected.to_string());
}

}  // namespace nibble::tensor
