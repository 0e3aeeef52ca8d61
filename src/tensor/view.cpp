#include "tensor/view.h"

#include <array>

namespace nibble::tensor {

View View::first(std::int64_t rows) const {
  NIBBLE_CHECK(shape.rank() >= 1 && rows >= 0 && rows <= shape[0], "rows {} of {}", rows,
               shape.to_string());
  std::array<std::int64_t, Shape::kMaxRank> dims{};
  for (int i = 0; i < shape.rank(); ++i) dims[static_cast<std::size_t>(i)] = shape[i];
  dims[0] = rows;
  return {
      data, dtype,
      Shape(std::span<const std::int64_t>(dims.data(), static_cast<std::size_t>(shape.rank())))};
}

void check_shape(const View& view, const Shape& expected, const char* what) {
  NIBBLE_CHECK(view.shape == expected, "{}: shape {}, expected {}", what, view.shape.to_string(),
               expected.to_string());
}

}  // namespace nibble::tensor
