// A layout on disk, inspected and served, and comparing what two of them compute.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "engine/model_runner.h"
#include "formats/layouts.h"
#include "golden/model_under_test.h"
#include "inspect/inspect.h"
#include "ops/ref/ref_backend.h"

namespace nibble::testing {

inline inspect::Report inspect_folder(const std::string& path, bool scan = true) {
  const ops::ref::RefBackend backend{ops::Numerics{}};
  inspect::Options options;
  options.scan = scan;
  options.kernel = [&](ops::OpKind op, quant::Format format) { return backend.kernel(op, format); };
  return inspect::inspect(checkpoint::Folder(path), options);
}

inline std::unique_ptr<engine::ModelRunner> load(const std::string& path,
                                                 Activations activations = Activations::kExact) {
  EngineOptions options;
  options.model_dir = path;
  options.device = DeviceKind::kCpu;
  options.activations = activations;
  options.threads = 2;
  options.max_model_len = 256;
  options.prefill_chunk = 64;
  return engine::ModelRunner::load(options, 1, nullptr);
}

inline std::vector<TokenId> prompt() {
  std::vector<TokenId> ids;
  ids.reserve(40);
  for (int i = 0; i < 40; ++i) ids.push_back((i * 37 + 5) % 320);
  return ids;
}

inline double worst_difference(const std::vector<std::vector<float>>& a,
                               const std::vector<std::vector<float>>& b) {
  EXPECT_EQ(a.size(), b.size());
  double worst = 0.0;
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i)
    for (std::size_t j = 0; j < a[i].size(); ++j)
      worst = std::max(worst, std::fabs(static_cast<double>(a[i][j]) - b[i][j]));
  return worst;
}

// What the start-up table says of a layer kind; "" when it has no such row.
inline std::string format_of(const engine::ModelRunner& runner, const std::string& kind) {
  for (const KernelChoice& row : runner.info().kernels)
    if (row.layer_kind == kind) return row.format;
  return {};
}

inline double cosine(const std::vector<std::vector<float>>& a,
                     const std::vector<std::vector<float>>& b) {
  double dot = 0.0, aa = 0.0, bb = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < a[i].size(); ++j) {
      const double x = a[i][j], y = b[i][j];
      dot += x * y;
      aa += x * x;
      bb += y * y;
    }
  return dot / std::sqrt(aa * bb);
}

}  // namespace nibble::testing
