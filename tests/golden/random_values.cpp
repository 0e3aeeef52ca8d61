#include "golden/random_values.h"

#include <bit>
#include <cmath>
#include <utility>

namespace nibble::testing {
namespace {

constexpr std::uint64_t kGamma = 0x9E3779B97F4A7C15ull;

std::uint64_t splitmix64(std::uint64_t x) {
  x += kGamma;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

std::uint64_t fnv1a64(std::string_view text) {
  std::uint64_t hash = 0xCBF29CE484222325ull;
  for (const char c : text) hash = (hash ^ static_cast<std::uint8_t>(c)) * 0x100000001B3ull;
  return hash;
}

float e4m3_value(std::uint8_t code) {
  const int exponent = (code >> 3) & 15;
  const int mantissa = code & 7;
  const float magnitude = exponent == 0
                              ? std::ldexp(static_cast<float>(mantissa), -9)
                              : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

float e2m1_value(int code) {
  constexpr float kMagnitudes[] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  return (code & 8) != 0 ? -kMagnitudes[code & 7] : kMagnitudes[code & 7];
}

float e8m0_value(std::uint8_t byte) {
  return std::ldexp(1.0f, byte - 127);
}

}  // namespace

Draws::Draws(std::string_view name, std::uint64_t seed) : key_(fnv1a64(name) ^ splitmix64(seed)) {}

std::uint64_t Draws::operator()(std::uint64_t element) const {
  return splitmix64(key_ + element * kGamma);
}

std::vector<float> normal_values(const Draws& draw, std::int64_t count, double std, double offset) {
  const auto scale = static_cast<float>(std * 1.7320508075688772 / 65536.0);
  const auto shift = static_cast<float>(offset);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint64_t r = draw(i);
    const auto sum = static_cast<std::int64_t>((r & 0xFFFF) + ((r >> 16) & 0xFFFF) +
                                               ((r >> 32) & 0xFFFF) + (r >> 48));
    // volatile: the product is rounded before the sum whatever the contraction flags are.
    volatile float product = static_cast<float>(sum - 131070) * scale;
    values[i] = offset != 0.0 ? product + shift : product;
  }
  return values;
}

std::vector<std::int64_t> hash_table(const Draws& draw, int vocab, int chosen, int experts) {
  std::vector<std::int64_t> table;
  table.reserve(static_cast<std::size_t>(vocab) * static_cast<std::size_t>(chosen));
  std::vector<std::int64_t> order(static_cast<std::size_t>(experts));
  for (int v = 0; v < vocab; ++v) {
    for (int e = 0; e < experts; ++e) order[static_cast<std::size_t>(e)] = e;
    for (int j = 0; j < chosen; ++j) {
      const std::uint64_t r =
          draw(static_cast<std::uint64_t>(v) * static_cast<std::uint64_t>(chosen) +
               static_cast<std::uint64_t>(j));
      const auto here = static_cast<std::size_t>(j);
      std::swap(order[here], order[here + r % static_cast<std::uint64_t>(experts - j)]);
      table.push_back(order[here]);
    }
  }
  return table;
}

Bytes e4m3_codes(const Draws& draw, std::int64_t count) {
  Bytes codes(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const std::uint64_t r = draw(i);
    const int bits = std::bit_width(static_cast<std::uint16_t>(r >> 32));
    const std::uint64_t exponent = bits > 0 ? static_cast<std::uint64_t>(bits - 1) : 0;
    auto code = static_cast<std::uint8_t>(((r >> 63) << 7) | (exponent << 3) | ((r >> 60) & 7));
    if ((code & 0x7F) == 0x7F) code = static_cast<std::uint8_t>(code - 1);
    codes[i] = code;
  }
  return codes;
}

Bytes e2m1_pairs(const Draws& draw, std::int64_t count) {
  Bytes bytes(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::uint8_t>(draw(i) & 0xFF);
  return bytes;
}

Bytes e8m0_scales(const Draws& draw, std::int64_t count, double gain, std::int64_t fan_in,
                  double code_rms) {
  constexpr int kJitter[] = {-1, 0, 0, 1};
  int exponent = 0;
  const double mantissa =
      std::frexp(gain / (std::sqrt(static_cast<double>(fan_in)) * code_rms), &exponent);
  const int base = mantissa > 0.70710678 ? exponent : exponent - 1;
  Bytes bytes(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::uint8_t>(127 + base + kJitter[draw(i) & 3]);
  return bytes;
}

std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

float bf16_value(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

std::vector<float> dequantise_fp8(const Bytes& codes, const Bytes& scale, std::int64_t rows,
                                  std::int64_t cols) {
  const std::int64_t blocks = (cols + 127) / 128;
  std::vector<float> values(codes.size());
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < cols; ++c) {
      const auto i = static_cast<std::size_t>(r * cols + c);
      values[i] = e4m3_value(codes[i]) *
                  e8m0_value(scale[static_cast<std::size_t>(r / 128 * blocks + c / 128)]);
    }
  }
  return values;
}

std::vector<float> dequantise_fp4(const Bytes& packed, const Bytes& scale, std::int64_t rows,
                                  std::int64_t cols) {
  std::vector<float> values(static_cast<std::size_t>(rows * cols));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const int code = (packed[i / 2] >> (i % 2 == 0 ? 0 : 4)) & 15;
    values[i] = e2m1_value(code) * e8m0_value(scale[i / 32]);
  }
  return values;
}

}  // namespace nibble::testing
