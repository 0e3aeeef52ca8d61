#include "quant/scale_stats.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"
#include "quant/scale.h"

namespace nibble::quant {
namespace {

void count_scale(ScaleStats& stats, float scale, std::int64_t times) {
  stats.count += times;
  if (!std::isfinite(scale)) {
    stats.nan += times;
    return;
  }
  if (std::signbit(scale)) stats.negative += times;
  if (scale == 0.0f) return;
  int exponent = 0;
  if (std::fabs(std::frexp(scale, &exponent)) != 0.5f) stats.powers_of_two = false;
  --exponent;  // frexp's mantissa is in [0.5, 1)
  stats.min_exponent = std::min(stats.min_exponent.value_or(exponent), exponent);
  stats.max_exponent = std::max(stats.max_exponent.value_or(exponent), exponent);
}

}  // namespace

void ScaleStats::add(const ScaleStats& other) {
  count += other.count;
  nan += other.nan;
  negative += other.negative;
  powers_of_two = powers_of_two && other.powers_of_two;
  if (!other.max_exponent) return;
  min_exponent = std::min(min_exponent.value_or(*other.min_exponent), *other.min_exponent);
  max_exponent = std::max(max_exponent.value_or(*other.max_exponent), *other.max_exponent);
}

ScaleStats scale_stats(tensor::DType dtype, std::span<const std::byte> bytes) {
  const std::int64_t width = tensor::dtype_bytes(dtype);
  NIBBLE_CHECK(static_cast<std::int64_t>(bytes.size()) % width == 0, "{} bytes of {}", bytes.size(),
               tensor::dtype_name(dtype));
  ScaleStats stats;
  if (width > 1) {
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(bytes.size()) / width; ++i)
      count_scale(stats, scale_value(dtype, bytes.data(), i), 1);
    return stats;
  }
  std::array<std::int64_t, 256> times{};
  for (const std::byte code : bytes) ++times[static_cast<std::size_t>(code)];
  const bool e8m0 = dtype == tensor::DType::kF8E8M0;
  NIBBLE_CHECK(e8m0 || dtype == tensor::DType::kF8E4M3, "scales of {}", tensor::dtype_name(dtype));
  for (std::size_t i = 0; i < times.size(); ++i) {
    if (times[i] == 0) continue;
    const auto code = static_cast<std::uint8_t>(i);
    count_scale(stats, !e8m0 ? e4m3_decode(code) : code <= 1 ? 0.0f : e8m0_decode(code), times[i]);
  }
  return stats;
}

ScaleStats scale_stats(const HostMatrix& matrix) {
  if (matrix.scales.size() == 0) return {};
  return scale_stats(matrix.scale_dtype, matrix.scales.span());
}

}  // namespace nibble::quant
