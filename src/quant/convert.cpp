#include "quant/convert.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "base/check.h"
#include "quant/mxfp4.h"
#include "quant/nvfp4.h"

namespace nibble::quant {
namespace {

constexpr std::int64_t kHalves = kMxfp4Group / kNvfp4Group;
constexpr std::int64_t kGroupBytes = kMxfp4Group / 2;
constexpr int kTopExponent = 8;  // of E4M3's powers of two, which run from 2^-9 to 2^8
constexpr int kLowestExponent = -9;

bool all_zero(const std::uint8_t* codes) {
  return std::all_of(codes, codes + kGroupBytes, [](std::uint8_t b) { return (b & 0x77u) == 0; });
}

// The codes of a half block times `factor`, a power of two: true when each was exact.
bool rescale_codes(std::uint8_t* codes, float factor) {
  bool exact = true;
  const auto rescale = [&](std::uint8_t code) {
    const float value = e2m1_decode(code) * factor;
    const std::uint8_t rounded = e2m1_encode(value);
    exact = exact && e2m1_decode(rounded) == value;
    return rounded;
  };
  for (std::int64_t j = 0; j < kNvfp4Group / 2; ++j) {
    const std::uint8_t low = rescale(codes[j] & 0xFu);
    const std::uint8_t high = rescale(static_cast<std::uint8_t>(codes[j] >> 4));
    codes[j] = static_cast<std::uint8_t>(low | (high << 4));
  }
  return exact;
}

struct Exponents {
  std::optional<int> min, max;
};

Exponents exponents(std::span<const HostMatrix* const> matrices) {
  Exponents e;
  for (const HostMatrix* m : matrices) {
    NIBBLE_CHECK(m->format == Format::kMxfp4, "{}", format_name(m->format));
    for (std::size_t g = 0; g < m->scales.size(); ++g) {
      const std::uint8_t scale = m->scales.as<std::uint8_t>()[g];
      NIBBLE_CHECK(scale != kE8M0Nan, "NaN scale {}", g);
      if (all_zero(m->data.as<std::uint8_t>() + static_cast<std::int64_t>(g) * kGroupBytes))
        continue;
      const int k = scale - kE8M0One;
      e.min = std::min(e.min.value_or(k), k);
      e.max = std::max(e.max.value_or(k), k);
    }
  }
  return e;
}

}  // namespace

std::vector<float> to_floats(const HostMatrix& matrix) {
  std::vector<float> values(static_cast<std::size_t>(matrix.rows * matrix.cols));
  const auto cols = static_cast<std::size_t>(matrix.cols);
  for (std::int64_t r = 0; r < matrix.rows; ++r)
    decode_row(matrix, r, std::span(values).subspan(static_cast<std::size_t>(r) * cols, cols));
  return values;
}

Nvfp4FromMxfp4 mxfp4_to_nvfp4(std::span<const HostMatrix* const> matrices) {
  const Exponents e = exponents(matrices);
  const int top = e.max.value_or(kTopExponent);  // all zeros: global scale 1
  Nvfp4FromMxfp4 out;
  if (e.max) out.span = *e.max - *e.min;
  for (const HostMatrix* from : matrices) {
    HostMatrix to = make_host_matrix(Format::kNvfp4, from->rows, from->cols);
    to.global_scale = std::ldexp(1.0f, top - kTopExponent);
    std::copy_n(from->data.data(), from->data.size(), to.data.data());
    auto* codes = to.data.as<std::uint8_t>();
    auto* scales = to.scales.as<std::uint8_t>();
    for (std::int64_t g = 0; g < static_cast<std::int64_t>(from->scales.size()); ++g) {
      ++out.blocks;
      std::uint8_t* group = codes + g * kGroupBytes;
      if (all_zero(group)) {
        std::fill_n(scales + g * kHalves, kHalves, e4m3_encode(1.0f));
        continue;
      }
      const int k = from->scales.as<std::uint8_t>()[g] - kE8M0One;
      const int exponent = k - top + kTopExponent;
      std::fill_n(scales + g * kHalves, kHalves,
                  e4m3_encode(std::ldexp(1.0f, std::max(exponent, kLowestExponent))));
      if (exponent >= kLowestExponent) continue;
      ++out.requantised_blocks;
      bool exact = true;
      for (std::int64_t half = 0; half < kHalves; ++half)
        exact = rescale_codes(group + half * kNvfp4Group / 2,
                              std::ldexp(1.0f, exponent - kLowestExponent)) &&
                exact;
      if (!exact) ++out.inexact_blocks;
    }
    out.matrices.push_back(std::move(to));
  }
  return out;
}

}  // namespace nibble::quant
