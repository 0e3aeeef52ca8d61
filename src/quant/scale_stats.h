// What the scales of a matrix look like: the damage a loader must refuse, and the span of exponents
// that decides which conversions and which kernels are exact.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "quant/matrix_format.h"
#include "tensor/dtype.h"

namespace nibble::quant {

struct ScaleStats {
  std::int64_t count = 0;
  std::int64_t nan = 0;       // NaN codes, and infinities of the wide types
  std::int64_t negative = 0;  // sign bit set, -0 included
  bool powers_of_two = true;  // of all finite ones but 0
  // floor(log2 |scale|) of the smallest and the largest; empty when no scale counts. Zeros do not
  // count, nor do E8M0 bytes 0 and 1: that is what quantisers give a block of zeros.
  std::optional<int> min_exponent, max_exponent;

  int span() const { return max_exponent ? *max_exponent - *min_exponent : 0; }
  void add(const ScaleStats& other);
};

// Scales as stored; bytes.size() is a multiple of the type's.
ScaleStats scale_stats(tensor::DType dtype, std::span<const std::byte> bytes);

// Of a matrix that has scales; count 0 for kF32 and kBF16.
ScaleStats scale_stats(const HostMatrix& matrix);

}  // namespace nibble::quant
