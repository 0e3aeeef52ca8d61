// How random_checkpoint.h fills one tensor.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace nibble::testing {

// The draws of one tensor: draw(i) for element i.
class Draws {
 public:
  Draws(std::string_view name, std::uint64_t seed);
  std::uint64_t operator()(std::uint64_t element) const;

 private:
  std::uint64_t key_;
};

using Bytes = std::vector<std::uint8_t>;

std::vector<float> normal_values(const Draws& draw, std::int64_t count, double std, double offset);
std::vector<std::int64_t> hash_table(const Draws& draw, int vocab, int chosen,
                                     int experts);  // [vocab, chosen], distinct
Bytes e4m3_codes(const Draws& draw, std::int64_t count);
Bytes e2m1_pairs(const Draws& draw, std::int64_t count);  // count bytes
Bytes e8m0_scales(const Draws& draw, std::int64_t count, double gain, std::int64_t fan_in,
                  double code_rms);

std::uint16_t to_bf16(float value);  // nearest even, finite values
float bf16_value(std::uint16_t bits);

// codes [rows, cols] and scale [ceil(rows/128), ceil(cols/128)] -> values.
std::vector<float> dequantise_fp8(const Bytes& codes, const Bytes& scale, std::int64_t rows,
                                  std::int64_t cols);
// packed [rows, cols/2], low nibble first, and scale [rows, cols/32] -> values [rows, cols].
std::vector<float> dequantise_fp4(const Bytes& packed, const Bytes& scale, std::int64_t rows,
                                  std::int64_t cols);

}  // namespace nibble::testing
