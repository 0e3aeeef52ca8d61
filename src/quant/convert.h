// From one weight format to another, as pure functions. Everything goes through fp32 (`to_floats`,
// then encode_matrix or encode_shared), but MXFP4 to NVFP4, which moves the codes and rewrites the
// scales.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "quant/matrix_format.h"

namespace nibble::quant {

// The whole matrix [rows, cols], row-major, as decode_row gives it.
std::vector<float> to_floats(const HostMatrix& matrix);

// How far `matrix` is from the values it was made of. Equal zeros of different sign count as equal.
struct ConversionError {
  std::int64_t values = 0;
  std::int64_t inexact = 0;   // of them
  double relative_rms = 0.0;  // |found - expected|_2 / |expected|_2; 0 when both vanish
  double worst = 0.0;         // the largest |found - expected|
  bool exact() const { return inexact == 0; }
};
ConversionError conversion_error(const HostMatrix& matrix, std::span<const float> expected);

// Encodes matrices that one product takes together: for kNvfp4 they share the global scale of the
// largest value among them (W1 and W3 of an expert); other formats have nothing to share. values[i]
// is [rows, cols].
std::vector<HostMatrix> encode_shared(Format format, std::int64_t rows, std::int64_t cols,
                                      std::span<const std::vector<float>> values);

// MXFP4 to NVFP4 (quantization.md 3.1). With k_max the largest exponent of a block that is not all
// zeros, over all the matrices: global scale 2^(k_max - 8), each scale byte becomes E4M3 2^(k - k_max
// + 8) twice, codes stay. Exact for blocks with k_max - k <= 17. In a block further down, each half
// is requantised with the scale 2^-9, the smallest there is.
struct Nvfp4FromMxfp4 {
  std::vector<HostMatrix> matrices;  // kNvfp4, one global scale
  std::int64_t blocks = 0;           // of 32, in all
  std::int64_t requantised_blocks = 0;
  std::int64_t inexact_blocks = 0;  // requantised ones in which a value changed
  int span = 0;                     // k_max - k_min over blocks that are not all zeros
};
// matrices: kMxfp4, without NaN scales; not empty.
Nvfp4FromMxfp4 mxfp4_to_nvfp4(std::span<const HostMatrix* const> matrices);

}  // namespace nibble::quant
