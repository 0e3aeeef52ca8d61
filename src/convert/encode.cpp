#include "convert/encode.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "nibble/status.h"
#include "quant/convert.h"
#include "quant/mxfp4.h"
#include "quant/nvfp4.h"
#include "quant/scale.h"

namespace nibble::convert {
namespace {

using quant::Format;
using quant::HostMatrix;
using tensor::DType;

constexpr std::int64_t kSliceRows = 128;  // a multiple of every block's rows

HostMatrix copy_of(const HostMatrix& from) {
  HostMatrix to = quant::make_host_matrix(from.format, from.rows, from.cols, from.scale_dtype);
  to.global_scale = from.global_scale;
  std::copy_n(from.data.data(), from.data.size(), to.data.data());
  std::copy_n(from.scales.data(), from.scales.size(), to.scales.data());
  return to;
}

float largest(const HostMatrix& matrix) {
  std::vector<float> row(static_cast<std::size_t>(matrix.cols));
  float amax = 0.0f;
  for (std::int64_t r = 0; r < matrix.rows; ++r) {
    decode_row(matrix, r, row);
    for (const float value : row) amax = std::max(amax, std::fabs(value));
  }
  return amax;
}

// The largest magnitude whose block decodes to finite values for certain. Scales may be rounded up
// by half a step of their type, and codes reach beyond amax: -8 against INT4's 7.5.
float largest_allowed(Target target) {
  constexpr float kMax = std::numeric_limits<float>::max();
  switch (target) {
    case Target::kBf16:
      return 0x1.FEp127f;  // the largest bf16
    case Target::kFp8:
    case Target::kMxfp4:
      return kMax / 4.0f;  // the scale is rounded up to a power of two
    case Target::kNvfp4:
    case Target::kInt4:
      return kMax / 1.25f;
  }
  NIBBLE_CHECK(false, "target {}", static_cast<int>(target));
}

void refuse_too_large(Target target, float amax, const std::string& name) {
  if (amax <= largest_allowed(target)) return;
  throw CheckpointError(fmt::format("{}: expected weights of at most {:.4g} for {}, found {:.4g}",
                                    name, largest_allowed(target), target_name(target), amax));
}

// Through fp32, a slice of rows at a time. `global`: kNvfp4 only.
HostMatrix requantise(Format format, const HostMatrix& source, float global) {
  HostMatrix out = quant::make_host_matrix(format, source.rows, source.cols);
  out.global_scale = format == Format::kNvfp4 ? global : 1.0f;
  const auto cols = static_cast<std::size_t>(source.cols);
  std::vector<float> values;
  std::size_t data_at = 0, scales_at = 0;
  for (std::int64_t begin = 0; begin < source.rows; begin += kSliceRows) {
    const std::int64_t rows = std::min(kSliceRows, source.rows - begin);
    values.resize(static_cast<std::size_t>(rows) * cols);
    for (std::int64_t r = 0; r < rows; ++r)
      decode_row(source, begin + r,
                 std::span(values).subspan(static_cast<std::size_t>(r) * cols, cols));
    const HostMatrix slice = format == Format::kNvfp4
                                 ? quant::encode_nvfp4(rows, source.cols, values, global)
                                 : quant::encode_matrix(format, rows, source.cols, values);
    std::copy_n(slice.data.data(), slice.data.size(), out.data.data() + data_at);
    std::copy_n(slice.scales.data(), slice.scales.size(), out.scales.data() + scales_at);
    data_at += slice.data.size();
    scales_at += slice.scales.size();
  }
  return out;
}

std::int64_t target_blocks(Format format, const HostMatrix& matrix) {
  return quant::scale_count(format, matrix.rows, matrix.cols);
}

Encoded to_nvfp4(std::span<const HostMatrix* const> sources, std::span<const std::string> names) {
  Encoded out;
  const auto all = [&](Format format) {
    return std::ranges::all_of(sources, [&](const HostMatrix* m) { return m->format == format; });
  };
  if (all(Format::kMxfp4)) {
    quant::Nvfp4FromMxfp4 made = quant::mxfp4_to_nvfp4(sources);
    constexpr std::int64_t kHalves = quant::kMxfp4Group / quant::kNvfp4Group;
    out.stats.span = made.span;
    out.stats.requantised_blocks = made.requantised_blocks * kHalves;
    out.stats.moved_blocks = made.blocks * kHalves - out.stats.requantised_blocks;
    out.matrices = std::move(made.matrices);
    return out;
  }
  const bool shared = std::ranges::all_of(
      sources, [&](const HostMatrix* m) { return m->global_scale == sources[0]->global_scale; });
  if (all(Format::kNvfp4) && shared) {
    for (const HostMatrix* source : sources) {
      out.stats.moved_blocks += target_blocks(Format::kNvfp4, *source);
      out.matrices.push_back(copy_of(*source));
    }
    return out;
  }
  float amax = 0.0f;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const float largest_here = largest(*sources[i]);
    refuse_too_large(Target::kNvfp4, largest_here, names[i]);
    amax = std::max(amax, largest_here);
  }
  // Not below the smallest normal number: engines may flush a subnormal scale to 0.
  const float global = std::max(quant::nvfp4_global_scale(amax), std::numeric_limits<float>::min());
  for (const HostMatrix* source : sources) {
    out.stats.requantised_blocks += target_blocks(Format::kNvfp4, *source);
    out.matrices.push_back(requantise(Format::kNvfp4, *source, global));
  }
  return out;
}

// 2^k of a positive power of two, or nothing.
std::optional<int> exponent_of(float value) {
  int exponent = 0;
  if (!(value > 0.0f) || std::frexp(value, &exponent) != 0.5f) return std::nullopt;
  return exponent - 1;
}

bool all_zero(const std::uint8_t* codes, std::int64_t bytes) {
  return std::all_of(codes, codes + bytes, [](std::uint8_t b) { return (b & 0x77u) == 0; });
}

}  // namespace

HostMatrix nvfp4_to_mxfp4(const HostMatrix& source, EncodeStats& stats) {
  NIBBLE_CHECK(source.format == Format::kNvfp4, "{}", quant::format_name(source.format));
  constexpr std::int64_t kHalfBytes = quant::kNvfp4Group / 2;
  HostMatrix out = quant::make_host_matrix(Format::kMxfp4, source.rows, source.cols);
  const std::int64_t groups = source.cols / quant::kMxfp4Group;
  std::vector<float> row(static_cast<std::size_t>(source.cols));
  for (std::int64_t r = 0; r < source.rows; ++r) {
    decode_row(source, r, row);
    // Requantise the row, then put back the groups that need no rounding.
    auto* codes = out.data.as<std::uint8_t>() + r * source.cols / 2;
    auto* scales = out.scales.as<std::uint8_t>() + r * groups;
    quant::mxfp4_encode_row(row, {codes, static_cast<std::size_t>(source.cols / 2)},
                            {scales, static_cast<std::size_t>(groups)});
    const auto* from = source.data.as<std::uint8_t>() + r * source.cols / 2;
    const auto* from_scales = source.scales.as<std::uint8_t>() + r * 2 * groups;
    for (std::int64_t g = 0; g < groups; ++g) {
      std::optional<int> exponent;
      bool moves = true;
      for (std::int64_t half = 0; half < 2 && moves; ++half) {
        const std::int64_t at = 2 * g + half;
        if (all_zero(from + at * kHalfBytes, kHalfBytes)) continue;
        // Scale and global are powers of two one by one: a product could be one by rounding.
        const auto scale = exponent_of(quant::e4m3_decode(from_scales[at]));
        const auto global = exponent_of(source.global_scale);
        moves = scale && global && (!exponent || *exponent == *scale + *global);
        if (moves) exponent = *scale + *global;
      }
      const int byte = exponent.value_or(0) + quant::kE8M0One;
      if (!moves || byte < 0 || byte > quant::kMxfp4MaxFiniteScale) {
        ++stats.requantised_blocks;
        continue;
      }
      ++stats.moved_blocks;
      std::copy_n(from + g * 2 * kHalfBytes, 2 * kHalfBytes, codes + g * 2 * kHalfBytes);
      if (exponent) scales[g] = static_cast<std::uint8_t>(byte);  // zeros: mxfp4_scale(0)
    }
  }
  return out;
}

HostMatrix with_f32_scales(const HostMatrix& matrix) {
  HostMatrix out = quant::make_host_matrix(matrix.format, matrix.rows, matrix.cols, DType::kF32);
  std::copy_n(matrix.data.data(), matrix.data.size(), out.data.data());
  const std::int64_t count = quant::scale_count(matrix.format, matrix.rows, matrix.cols);
  for (std::int64_t i = 0; i < count; ++i)
    out.scales.as<float>()[i] = quant::scale_value(matrix.scale_dtype, matrix.scales.data(), i);
  return out;
}

Encoded encode(Target target, std::span<const HostMatrix* const> sources,
               std::span<const std::string> names) {
  NIBBLE_CHECK(!sources.empty() && names.size() == sources.size() &&
                   (sources.size() == 1 || target == Target::kNvfp4),
               "{} matrices at once", sources.size());
  if (target == Target::kNvfp4) return to_nvfp4(sources, names);
  const Format format = target_format(target);
  const HostMatrix& source = *sources[0];
  Encoded out;
  if (source.format == format) {
    out.stats.moved_blocks = target_blocks(format, source);
    out.matrices.push_back(target == Target::kFp8 ? with_f32_scales(source) : copy_of(source));
    return out;
  }
  if (target == Target::kMxfp4 && source.format == Format::kNvfp4) {
    refuse_too_large(target, largest(source), names[0]);
    out.matrices.push_back(nvfp4_to_mxfp4(source, out.stats));
    return out;
  }
  refuse_too_large(target, largest(source), names[0]);
  out.stats.requantised_blocks = target_blocks(format, source);
  HostMatrix made = requantise(format, source, 1.0f);
  out.matrices.push_back(target == Target::kFp8 ? with_f32_scales(made) : std::move(made));
  return out;
}

}  // namespace nibble::convert
