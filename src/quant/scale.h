// Scales as they are stored beside a matrix: any of five types, read and written one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/check.h"
#include "quant/bf16.h"
#include "quant/e4m3.h"
#include "quant/e8m0.h"
#include "quant/f16.h"
#include "tensor/dtype.h"

namespace nibble::quant {

namespace internal {
template <typename T>
T scale_at(const std::byte* scales, std::int64_t i) {
  T value;
  std::memcpy(&value, scales + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}
}  // namespace internal

// Element i as fp32, exact. dtype: F8_E8M0, F8_E4M3, BF16, F16 or F32.
inline float scale_value(tensor::DType dtype, const std::byte* scales, std::int64_t i) {
  switch (dtype) {
    case tensor::DType::kF8E8M0:
      return e8m0_decode(static_cast<std::uint8_t>(scales[i]));
    case tensor::DType::kF8E4M3:
      return e4m3_decode(static_cast<std::uint8_t>(scales[i]));
    case tensor::DType::kBF16:
      return bf16_decode(internal::scale_at<std::uint16_t>(scales, i));
    case tensor::DType::kF16:
      return f16_decode(internal::scale_at<std::uint16_t>(scales, i));
    case tensor::DType::kF32:
      return internal::scale_at<float>(scales, i);
    default:
      NIBBLE_CHECK(false, "scales of {}", tensor::dtype_name(dtype));
  }
  return 0.0f;
}

// Stores `value` as element i, to nearest even (E8M0: the next power of two above), and returns what
// was stored. A positive value never becomes 0: it is brought up to the type's smallest.
float store_scale(tensor::DType dtype, float value, std::byte* scales, std::int64_t i);

}  // namespace nibble::quant
