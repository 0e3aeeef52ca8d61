// Element types as they occur in checkpoints and buffers.
#pragma once

#include <cstdint>
#include <string_view>

namespace nibble::tensor {

enum class DType : std::uint8_t { kF32, kBF16, kF16, kF8E4M3, kF8E8M0, kI8, kU8, kI16, kI32, kI64 };

constexpr std::int64_t dtype_bytes(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kBF16:
    case DType::kF16:
    case DType::kI16:
      return 2;
    case DType::kI64:
      return 8;
    case DType::kF8E4M3:
    case DType::kF8E8M0:
    case DType::kI8:
    case DType::kU8:
      return 1;
  }
  return 0;
}

// The safetensors spelling: "F8_E4M3", "BF16", ...
constexpr std::string_view dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "F32";
    case DType::kBF16:
      return "BF16";
    case DType::kF16:
      return "F16";
    case DType::kF8E4M3:
      return "F8_E4M3";
    case DType::kF8E8M0:
      return "F8_E8M0";
    case DType::kI8:
      return "I8";
    case DType::kU8:
      return "U8";
    case DType::kI16:
      return "I16";
    case DType::kI32:
      return "I32";
    case DType::kI64:
      return "I64";
  }
  return "?";
}

}  // namespace nibble::tensor
