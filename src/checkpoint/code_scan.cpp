#include "checkpoint/code_scan.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace nibble::checkpoint {
namespace {

// A lane (an element) is bad when its bits under `mask` are all ones. Adding `step`, the lowest bit
// of the mask, to the masked lane carries into the lane's `top` bit exactly then, and never beyond
// the lane.
struct LaneTest {
  std::uint64_t mask;
  std::uint64_t step;
  std::uint64_t top;

  bool any_bad(std::uint64_t word) const { return (((word & mask) + step) & top) != 0; }
};

template <typename Element>
constexpr std::uint64_t repeat(Element lane) {
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < 8 / sizeof(Element); ++i) {
    word |= static_cast<std::uint64_t>(lane) << (i * 8 * sizeof(Element));
  }
  return word;
}

template <typename Element>
constexpr LaneTest lane_test(Element mask, Element step, Element top) {
  return {repeat(mask), repeat(step), repeat(top)};
}

template <typename Element>
std::optional<std::int64_t> find_bad(std::span<const std::byte> bytes, const LaneTest test) {
  NIBBLE_CHECK(bytes.size() % sizeof(Element) == 0, "{} bytes", bytes.size());
  constexpr std::size_t kStride = 64;
  std::size_t at = 0;
  for (; at + kStride <= bytes.size(); at += kStride) {
    std::uint64_t bad = 0;
    for (std::size_t i = 0; i < kStride; i += 8) {
      std::uint64_t word;
      std::memcpy(&word, bytes.data() + at + i, 8);
      bad |= ((word & test.mask) + test.step) & test.top;
    }
    if (bad != 0) break;
  }
  for (; at < bytes.size(); at += sizeof(Element)) {
    Element element;
    std::memcpy(&element, bytes.data() + at, sizeof(Element));
    if (test.any_bad(element)) return static_cast<std::int64_t>(at / sizeof(Element));
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::int64_t> find_e4m3_nan(std::span<const std::byte> codes) {
  return find_bad<std::uint8_t>(codes, lane_test<std::uint8_t>(0x7F, 0x01, 0x80));
}

std::optional<std::int64_t> find_nonfinite_bf16(std::span<const std::byte> values) {
  return find_bad<std::uint16_t>(values, lane_test<std::uint16_t>(0x7F80, 0x0080, 0x8000));
}

std::optional<std::int64_t> find_nonfinite_f16(std::span<const std::byte> values) {
  return find_bad<std::uint16_t>(values, lane_test<std::uint16_t>(0x7C00, 0x0400, 0x8000));
}

std::optional<std::int64_t> find_nonfinite_f32(std::span<const std::byte> values) {
  return find_bad<std::uint32_t>(values,
                                 lane_test<std::uint32_t>(0x7F800000, 0x00800000, 0x80000000));
}

std::optional<std::int64_t> find_byte_above(std::span<const std::byte> codes,
                                            std::uint8_t largest) {
  const auto found = std::find_if(codes.begin(), codes.end(), [largest](std::byte code) {
    return std::to_integer<std::uint8_t>(code) > largest;
  });
  if (found == codes.end()) return std::nullopt;
  return found - codes.begin();
}

}  // namespace nibble::checkpoint
