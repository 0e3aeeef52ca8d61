#include "quant/mxfp4.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace nibble::quant {
namespace {

void check_row(std::size_t cols, std::size_t bytes, std::size_t scales) {
  NIBBLE_CHECK(cols % kMxfp4Group == 0 && bytes * 2 == cols && scales * kMxfp4Group == cols,
               "columns {} bytes {} scales {}", cols, bytes, scales);
}

}  // namespace

void mxfp4_decode_row(std::span<const std::uint8_t> bytes, std::span<const std::uint8_t> scales,
                      std::span<float> out) {
  check_row(out.size(), bytes.size(), scales.size());
  for (std::size_t j = 0; j < bytes.size(); ++j) {
    const float scale = e8m0_decode(scales[2 * j / kMxfp4Group]);
    out[2 * j] = e2m1_decode(bytes[j] & 0xFu) * scale;
    out[2 * j + 1] = e2m1_decode(static_cast<std::uint8_t>(bytes[j] >> 4)) * scale;
  }
}

void mxfp4_encode_row(std::span<const float> values, std::span<std::uint8_t> bytes,
                      std::span<std::uint8_t> scales, Mxfp4Rule rule) {
  check_row(values.size(), bytes.size(), scales.size());
  for (std::size_t group = 0; group < scales.size(); ++group) {
    const auto members = values.subspan(group * kMxfp4Group, kMxfp4Group);
    float amax = 0.0f;
    for (const float value : members) amax = std::max(amax, std::fabs(value));
    const std::uint8_t scale = mxfp4_scale(amax, rule);
    NIBBLE_CHECK(scale != kE8M0Nan, "group {} amax {}", group, amax);
    const float inverse = e8m0_reciprocal(scale);
    for (std::size_t j = 0; j < members.size(); j += 2) {
      const std::uint8_t low = e2m1_encode(members[j] * inverse);
      const std::uint8_t high = e2m1_encode(members[j + 1] * inverse);
      bytes[group * kMxfp4Group / 2 + j / 2] = static_cast<std::uint8_t>(low | (high << 4));
    }
    scales[group] = scale;
  }
}

}  // namespace nibble::quant
