// Searches for codes that no weight may hold. Each returns the element's place, or nothing; eight
// bytes are tested at a time, so a scan costs about as much as reading the bytes from memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace nibble::checkpoint {

std::optional<std::int64_t> find_e4m3_nan(std::span<const std::byte> codes);  // 0x7F, 0xFF

// Infinities and NaNs, in little-endian elements; the span's size is a multiple of the element's.
std::optional<std::int64_t> find_nonfinite_bf16(std::span<const std::byte> values);
std::optional<std::int64_t> find_nonfinite_f16(std::span<const std::byte> values);
std::optional<std::int64_t> find_nonfinite_f32(std::span<const std::byte> values);

// The first byte above `largest`: an E8M0 NaN (0xFF), or a scale whose product leaves fp32's range.
std::optional<std::int64_t> find_byte_above(std::span<const std::byte> codes, std::uint8_t largest);

}  // namespace nibble::checkpoint
