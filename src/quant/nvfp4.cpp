#include "quant/nvfp4.h"

#include <cmath>

#include "base/check.h"

namespace nibble::quant {
namespace {

void check_row(std::size_t cols, std::size_t bytes, std::size_t scales) {
  NIBBLE_CHECK(cols % kNvfp4Group == 0 && bytes * 2 == cols && scales * kNvfp4Group == cols,
               "columns {} bytes {} scales {}", cols, bytes, scales);
}

}  // namespace

void nvfp4_decode_row(std::span<const std::uint8_t> bytes, std::span<const std::uint8_t> scales,
                      float global, std::span<float> out) {
  check_row(out.size(), bytes.size(), scales.size());
  for (std::size_t j = 0; j < bytes.size(); ++j) {
    const float scale = e4m3_decode(scales[2 * j / kNvfp4Group]);
    out[2 * j] = e2m1_decode(bytes[j]) * scale * global;
    out[2 * j + 1] = e2m1_decode(static_cast<std::uint8_t>(bytes[j] >> 4)) * scale * global;
  }
}

void nvfp4_encode_row(std::span<const float> values, float global, std::span<std::uint8_t> bytes,
                      std::span<std::uint8_t> scales) {
  check_row(values.size(), bytes.size(), scales.size());
  NIBBLE_CHECK(global > 0.0f && std::isfinite(global), "global scale {}", global);
  for (std::size_t group = 0; group < scales.size(); ++group) {
    const auto members = values.subspan(group * kNvfp4Group, kNvfp4Group);
    float amax = 0.0f;
    for (const float value : members) amax = std::max(amax, std::fabs(value));
    NIBBLE_CHECK(std::isfinite(amax), "group {} amax {}", group, amax);
    scales[group] = nvfp4_scale(amax, global);
    const float step = e4m3_decode(scales[group]) * global;
    // A step that underflows to 0 belongs to values that no code of this matrix could hold.
    const auto code = [step](float value) {
      return step == 0.0f ? std::uint8_t{0} : e2m1_encode(value / step);
    };
    for (std::size_t j = 0; j < members.size(); j += 2) {
      bytes[group * kNvfp4Group / 2 + j / 2] =
          static_cast<std::uint8_t>(code(members[j]) | (code(members[j + 1]) << 4));
    }
  }
}

}  // namespace nibble::quant
