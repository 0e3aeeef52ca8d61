// What the tests of the Hopper kernels share: a backend where there is such a GPU, random weights, comparisons.
//
// Bars. A product with bf16 operands is exact but for the order of its sum. One with FP8 operands keeps about 14 bits of each sum
// of 32 products (docs/perf-log.md), 2.2e-4 of a result in the mean square. Outputs on the bf16 grid then differ by a step
// where a boundary lies between, so by less than 3e-3 in relative L2. In the experts a hidden value passes through such a
// product, bf16 and FP8: an error e moves sqrt(e q) of it with steps of q = 0.09 of the value, 5e-3 in the mean; a product of
// three random numbers has few large values, so single rows reach twice that. The product with w2 alone keeps to 3e-3.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "ops/cuda/cuda_backend.h"
#include "ops/ref/ref_backend.h"
#include "ops/testing/op_cases.h"
#include "quant/bf16.h"

namespace nibble::ops::cuda::testing {

using quant::Format;
using Floats = std::vector<float>;
using Ints = std::vector<std::int32_t>;

inline constexpr Numerics kRelease{true, RowFormat::kFp8Nope, RowFormat::kFp4Index};
inline constexpr double kProductBar = 3e-3, kExpertsBar = 1.5e-2;

class Sm90 : public ::testing::Test {
 protected:
  void SetUp() override {
    if (device_count() == 0) GTEST_SKIP() << "no NVIDIA GPU on this machine";
    backend_ = std::make_unique<CudaBackend>(kRelease);
    if (backend_->kernel(OpKind::kExperts, Format::kMxfp4, 2048, 4096).unit != "tensor core")
      GTEST_SKIP() << "no kernels of its own for " << backend_->description();
  }

  // On the bf16 grid.
  Floats normal(std::int64_t count, float deviation) {
    std::normal_distribution<float> draw(0.0f, deviation);
    Floats out(static_cast<std::size_t>(count));
    for (float& x : out) x = quant::bf16_round(draw(random_));
    return out;
  }

  // Random codes of every kind but NaN; scales over six powers of two.
  quant::HostMatrix random_matrix(Format format, std::int64_t rows, std::int64_t cols) {
    quant::HostMatrix m = quant::make_host_matrix(format, rows, cols);
    auto* words = m.data.as<std::uint64_t>();
    for (std::size_t i = 0; i < m.data.size() / 8; ++i) words[i] = random_();
    auto* bytes = m.data.as<std::uint8_t>();
    if (format == Format::kFp8Block128)
      for (std::size_t i = 0; i < m.data.size(); ++i)
        if ((bytes[i] & 0x7F) == 0x7F) bytes[i] ^= 1;
    if (format == Format::kBF16)
      for (std::size_t i = 1; i < m.data.size(); i += 2)
        bytes[i] = static_cast<std::uint8_t>((bytes[i] & 0x80) | (0x3A + bytes[i] % 4));
    auto* scales = m.scales.as<std::uint8_t>();
    const int middle = format == Format::kMxfp4 ? 118 : 112;
    for (std::size_t i = 0; i < m.scales.size(); ++i)
      scales[i] = static_cast<std::uint8_t>(middle + random_() % 6);
    return m;
  }
  static quant::HostMatrix copy(const quant::HostMatrix& m) {
    quant::HostMatrix out = quant::make_host_matrix(m.format, m.rows, m.cols);
    std::memcpy(out.data.data(), m.data.data(), m.data.size());
    if (m.scales.size() > 0) std::memcpy(out.scales.data(), m.scales.data(), m.scales.size());
    return out;
  }

  static tensor::View put(Backend& b, const Floats& values, const tensor::Shape& shape) {
    return b.upload(std::span<const float>(values), shape);
  }
  static tensor::View put(Backend& b, const Ints& values, const tensor::Shape& shape) {
    return b.upload(std::span<const std::int32_t>(values), shape);
  }
  static tensor::View poisoned(Backend& b, const tensor::Shape& shape) {
    return put(
        b,
        Floats(static_cast<std::size_t>(shape.elements()), std::numeric_limits<float>::quiet_NaN()),
        shape);
  }
  static Floats floats_of(Backend& b, const tensor::View& view) {
    Floats out(static_cast<std::size_t>(view.shape.elements()));
    b.download(view, std::as_writable_bytes(std::span(out)));
    return out;
  }
  static double distance(const Floats& found, const Floats& expected) {
    double square = 0.0, all = 0.0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const double off = static_cast<double>(found[i]) - expected[i];
      square += off * off;
      all += static_cast<double>(expected[i]) * expected[i];
    }
    return std::sqrt(square / all);  // NaN where an output was not written
  }
  static bool same_bits(const float* a, const float* b, std::int64_t n) {
    return std::memcmp(a, b, static_cast<std::size_t>(n) * sizeof(float)) == 0;
  }

  std::unique_ptr<CudaBackend> backend_;
  ref::RefBackend reference_{kRelease};
  std::mt19937_64 random_{ops::testing::case_seed()};
};

}  // namespace nibble::ops::cuda::testing
