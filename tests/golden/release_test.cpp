// Every host backend against the port's release rounding (tools/golden/port/model.py lists the rounding points).
//
// A coarse grid turns the last bit of a sum now and then into a whole step, and a few layers turn such steps into noise. So one
// layer is compared sharply: at the median position the streams are equal to 1e-3 (equal bit for bit, mostly), where leaving out any
// rounding point moves them by more (tests/golden/README.md has the table). The six-layer model is compared loosely.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "golden/golden_file.h"
#include "golden/model_under_test.h"

namespace nibble::testing {
namespace {

constexpr double kMedian = 1e-3;         // relative rms difference of a position, one layer
constexpr double kAllTogether = 1.5e-2;  // and of all positions in one
constexpr int kOtherSelections = 1;      // of 300 rows
constexpr double kSixLayers = 0.25;      // streams of the whole model, all positions in one

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

class Difference {
 public:
  void add(const std::vector<float>& found, const float* expected) {
    double difference = 0.0, norm = 0.0;
    for (std::size_t i = 0; i < found.size(); ++i) {
      difference += (found[i] - expected[i]) * static_cast<double>(found[i] - expected[i]);
      norm += expected[i] * static_cast<double>(expected[i]);
    }
    positions_.push_back(std::sqrt(difference / norm));
    difference_ += difference;
    norm_ += norm;
  }
  double median() const { return median_of(positions_); }
  const std::vector<double>& positions() const { return positions_; }
  double all() const { return std::sqrt(difference_ / norm_); }

 private:
  std::vector<double> positions_;
  double difference_ = 0.0, norm_ = 0.0;
};

Difference compare(const GoldenFile& file, const std::string& name,
                   const std::vector<std::vector<float>>& rows, std::int32_t below = 1 << 30) {
  const std::vector<float> expected = file.floats(name);
  const std::vector<std::int32_t> positions = file.ints("prompt0.positions");
  Difference difference;
  for (std::size_t i = 0; i < positions.size(); ++i) {
    const auto& found = rows[static_cast<std::size_t>(positions[i])];
    if (positions[i] < below) difference.add(found, expected.data() + i * found.size());
  }
  return difference;
}

struct Part {
  const char* name;
  int ratio;
  int hash_layers;
};

class ReleaseTest : public ::testing::TestWithParam<DeviceKind> {
 protected:
  const GoldenFile file_{"a_release.safetensors"};
  const std::vector<TokenId> ids_ = file_.ints("prompt0.ids");
};

TEST_P(ReleaseTest, OneLayerOfEachKind) {
  if (!has_device(GetParam())) GTEST_SKIP() << "no NVIDIA GPU, or built without CUDA";
  if (GetParam() == DeviceKind::kRef && std::getenv("NIBBLE_TEST_SHORT") != nullptr)
    GTEST_SKIP() << "plain loops under a sanitizer: the CPU backend runs it";
  std::vector<double> drafts;
  for (const Part& part : {Part{"sliding", 0, 1}, Part{"csa", 4, 0}, Part{"hca", 128, 0}}) {
    RandomCheckpointSpec spec = golden_spec('a');
    spec.compress_ratios = {part.ratio};
    spec.num_hash_layers = part.hash_layers;
    const ScratchFolder folder;
    const auto runner = load_random(folder, spec, GetParam(), Activations::kRelease);
    const std::string p = std::string(part.name) + ".";
    for (const int chunk : {0, 37}) {
      if (GetParam() == DeviceKind::kRef && chunk != 0 &&
          std::getenv("NIBBLE_TEST_LONG") == nullptr)
        continue;
      RunOptions options;
      options.chunk = chunk;
      options.drafter = true;
      const Trace trace = run(*runner, ids_, options);
      const std::pair<const char*, Difference> found[] = {
          {"streams", compare(file_, p + "streams.layer0", trace.streams.at(0))},
          {"logits", compare(file_, p + "logits", trace.logits)}};
      for (const auto& [what, difference] : found) {
        EXPECT_LE(difference.median(), kMedian) << p << what << " chunk " << chunk;
        EXPECT_LE(difference.all(), kAllTogether) << p << what << " chunk " << chunk;
      }
      const Difference draft = compare(file_, p + "mtp1.streams", trace.mtp1_streams, 16);
      drafts.insert(drafts.end(), draft.positions().begin(), draft.positions().end());
      if (part.ratio != 4) continue;
      const std::vector<std::int32_t> expected = file_.ints("csa.index.layer0.entries");
      int others = 0;
      for (std::size_t row = 0; row < ids_.size(); ++row) {
        const auto& selected = trace.selected.at(0)[row];
        others +=
            !std::equal(selected.begin(), selected.end(),
                        expected.begin() + static_cast<std::ptrdiff_t>(row * selected.size()));
      }
      EXPECT_LE(others, kOtherSelections) << "rows with another selection, chunk " << chunk;
    }
  }
  // The MTP block adds a layer. Its first rows, whose windows hold few keys, are sharp unless one early row of the target took another
  // step, which all later rows of that part see: so the parts are judged together.
  EXPECT_LE(median_of(drafts), kMedian) << "mtp1";
}

TEST_P(ReleaseTest, SixLayersLoosely) {
  if (!has_device(GetParam())) GTEST_SKIP() << "no NVIDIA GPU, or built without CUDA";
  if (GetParam() == DeviceKind::kRef && std::getenv("NIBBLE_TEST_SHORT") != nullptr)
    GTEST_SKIP() << "plain loops under a sanitizer: the CPU backend runs it";
  const ScratchFolder folder;
  const auto runner = load_random(folder, golden_spec('a'), GetParam(), Activations::kRelease);
  const Trace trace = run(*runner, ids_, {});
  for (const auto& [layer, rows] : trace.streams)
    EXPECT_LE(compare(file_, fmt::format("prompt0.streams.layer{}", layer), rows).all(), kSixLayers)
        << "layer " << layer;
}

INSTANTIATE_TEST_SUITE_P(Backends, ReleaseTest,
                         ::testing::Values(DeviceKind::kRef, DeviceKind::kCpu, DeviceKind::kCuda),
                         [](const ::testing::TestParamInfo<DeviceKind>& tested) {
                           return device_name(tested.param);
                         });

}  // namespace
}  // namespace nibble::testing
