#include "quant/scale.h"

namespace nibble::quant {

float store_scale(tensor::DType dtype, float value, std::byte* scales, std::int64_t i) {
  const auto put = [&](auto code) {
    std::memcpy(scales + i * static_cast<std::int64_t>(sizeof(code)), &code, sizeof(code));
  };
  const auto put_half = [&](std::uint16_t code) {
    put(code == 0 && value > 0.0f ? std::uint16_t{1} : code);
  };
  switch (dtype) {
    case tensor::DType::kF8E8M0:
      put(e8m0_ceil(value));
      break;
    case tensor::DType::kF8E4M3: {
      const std::uint8_t code = e4m3_encode(value);
      put(code == 0 && value > 0.0f ? std::uint8_t{1} : code);
      break;
    }
    case tensor::DType::kBF16:
      put_half(bf16_encode(value));
      break;
    case tensor::DType::kF16:
      put_half(f16_encode(value));
      break;
    case tensor::DType::kF32:
      put(value);
      break;
    default:
      NIBBLE_CHECK(false, "scales of {}", tensor::dtype_name(dtype));
  }
  return scale_value(dtype, scales, i);
}

}  // namespace nibble::quant
