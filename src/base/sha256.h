#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace nibble {

// Lower-case hex SHA-256 of the bytes.
std::string sha256_hex(std::span<const std::byte> bytes);

}  // namespace nibble
