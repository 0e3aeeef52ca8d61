// From one weight format to another, as pure functions. Everything goes through fp32 (`to_floats`,
// then encode_matrix), but MXFP4 to NVFP4, which moves the codes and rewrites the
// scales.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "quant/matrix_format.h"

namespace nibble::quant {

// The whole matrix [rows, cols], row-major, as decode_row gives it.
std::vector<float> to_floats(const HostMatrix& matrix);

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
