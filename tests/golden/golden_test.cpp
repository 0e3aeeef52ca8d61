// Every host backend against the golden files of the transformers library: streams after each
// layer, selected entries, router choices, log-probabilities, greedy tokens; in one shot, in chunks
// and token by token; and the MTP block against the port.
//
// Tolerances (tests/golden/README.md): log-probabilities 2e-4 at worst and 2e-5 on average. The two
// implementations that made the files differ by 4.4e-5 in logits of range 15 and by 1e-4 in streams
// of range 50: streams get 2e-6 of their largest value per layer passed, which is what 2^-20 of
// rounding noise a layer amounts to.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "golden/golden_file.h"
#include "golden/model_under_test.h"

namespace nibble::testing {
namespace {

constexpr double kWorstLogprob = 2e-4;
constexpr double kMeanLogprob = 2e-5;
constexpr double kStreamShare = 8e-6;
constexpr float kGreedyMargin = 1e-3f;

bool flag(const char* name) {
  return std::getenv(name) != nullptr;
}
bool short_run() {
  return flag("NIBBLE_TEST_SHORT");
}  // under sanitizers: lengths up to 257, two chunkings
bool long_run() {
  return flag("NIBBLE_TEST_LONG");
}  // every length in every chunking on every backend

struct Worst {
  double difference = 0.0;
  double sum = 0.0;
  std::int64_t count = 0;
  std::string where;

  void add(double found, double expected, const std::string& place) {
    const double d = std::isfinite(found) ? std::fabs(found - expected) : INFINITY;
    sum += d;
    ++count;
    if (d > difference) {
      difference = d;
      where = fmt::format("{}: found {}, expected {}", place, found, expected);
    }
  }
  double mean() const { return count ? sum / static_cast<double>(count) : 0.0; }
};

std::vector<double> log_softmax(const float* logits, std::int64_t n) {
  const double top = *std::max_element(logits, logits + n);
  double sum = 0.0;
  for (std::int64_t i = 0; i < n; ++i) sum += std::exp(logits[i] - top);
  std::vector<double> out(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i)
    out[static_cast<std::size_t>(i)] = logits[i] - top - std::log(sum);
  return out;
}

void compare_logprobs(const std::vector<float>& found, const float* expected,
                      const std::string& place, Worst& worst) {
  const auto n = static_cast<std::int64_t>(found.size());
  const auto a = log_softmax(found.data(), n), b = log_softmax(expected, n);
  for (std::size_t i = 0; i < a.size(); ++i)
    worst.add(a[i], b[i], fmt::format("{} token {}", place, i));
}

void compare_streams(const std::vector<float>& found, const float* expected,
                     const std::string& place) {
  float range = 1.0f;
  Worst worst;
  for (std::size_t i = 0; i < found.size(); ++i) {
    range = std::max(range, std::fabs(expected[i]));
    worst.add(found[i], expected[i], fmt::format("{} element {}", place, i));
  }
  EXPECT_LE(worst.difference, kStreamShare * range) << worst.where;
}

class Golden {
 public:
  Golden(char config, DeviceKind device, Storage storage = Storage::kPublished,
         Spelling spelling = Spelling::kDeepSeek)
      : file(std::string(1, config) + ".safetensors") {
    RandomCheckpointSpec spec = golden_spec(config);
    spec.storage = storage;
    spec.spelling = spelling;
    runner = load_random(folder, spec, device, Activations::kExact);
  }

  std::vector<TokenId> ids(int prompt) const {
    return file.ints(fmt::format("prompt{}.ids", prompt));
  }

  ScratchFolder folder;
  GoldenFile file;
  std::unique_ptr<engine::ModelRunner> runner;
};

// Compares what a run over the first `length` tokens shows at the dumped positions below it.
void compare(const Golden& golden, int prompt, int length, const Trace& trace,
             const std::string& name) {
  const std::string p = fmt::format("prompt{}.", prompt);
  const std::vector<std::int32_t> positions = golden.file.ints(p + "positions");
  const std::vector<float> logits = golden.file.floats(p + "logits");
  const std::int64_t vocab = golden.file.shape(p + "logits")[1];
  Worst logprobs;
  for (std::size_t i = 0; i < positions.size(); ++i) {
    const auto at = static_cast<std::size_t>(positions[i]);
    if (positions[i] >= length) continue;
    compare_logprobs(trace.logits[at], logits.data() + static_cast<std::int64_t>(i) * vocab,
                     fmt::format("{} position {}", name, at), logprobs);
    for (const auto& [layer, rows] : trace.streams) {
      const std::vector<float> expected =
          golden.file.floats(fmt::format("{}streams.layer{}", p, layer));
      compare_streams(rows[at], expected.data() + i * rows[at].size(),
                      fmt::format("{} layer {} position {}", name, layer, at));
    }
    for (const auto& [layer, rows] : trace.selected) {
      const auto expected = golden.file.ints(fmt::format("{}index.layer{}.entries", p, layer));
      const std::vector<std::int32_t> row(
          expected.begin() + static_cast<std::ptrdiff_t>(i * rows[at].size()),
          expected.begin() + static_cast<std::ptrdiff_t>((i + 1) * rows[at].size()));
      EXPECT_EQ(rows[at], row) << name << " layer " << layer << " position " << at;
    }
    for (const auto& [layer, rows] : trace.experts) {
      std::vector<std::pair<std::int32_t, float>> chosen;
      for (std::size_t j = 0; j < rows[at].size(); ++j)
        chosen.emplace_back(rows[at][j], trace.expert_weights.at(layer)[at][j]);
      std::sort(chosen.begin(), chosen.end());
      const auto experts = golden.file.ints(fmt::format("{}router.layer{}.experts", p, layer));
      const auto weights = golden.file.floats(fmt::format("{}router.layer{}.weights", p, layer));
      for (std::size_t j = 0; j < chosen.size(); ++j) {
        EXPECT_EQ(chosen[j].first, experts[i * chosen.size() + j])
            << name << " layer " << layer << " position " << at;
        EXPECT_NEAR(chosen[j].second, weights[i * chosen.size() + j], 1e-4)
            << name << " layer " << layer << " position " << at;
      }
    }
  }
  EXPECT_LE(logprobs.difference, kWorstLogprob) << logprobs.where;
  EXPECT_LE(logprobs.mean(), kMeanLogprob) << name;
  if (flag("NIBBLE_TEST_VERBOSE"))
    fmt::print("{}: logprob worst {:.2e} mean {:.2e}\n", name, logprobs.difference,
               logprobs.mean());
}

struct Case {
  char config;
  DeviceKind device;
};

std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  return fmt::format("{}_{}", info.param.config, device_name(info.param.device));
}

class GoldenTest : public ::testing::TestWithParam<Case> {};

TEST_P(GoldenTest, EveryLengthAndChunking) {
  const Case c = GetParam();
  if (!has_device(c.device)) GTEST_SKIP() << "no NVIDIA GPU, or built without CUDA";
  if (short_run() && c.config != 'c' && c.device == DeviceKind::kRef)
    GTEST_SKIP() << "under a sanitizer configuration c stands for all";
  Golden golden(c.config, c.device);
  std::vector<int> lengths = {1, 3, 4, 5, 127, 128, 129, 255, 256, 257, 300, 700};
  if (short_run()) lengths.resize(10);
  std::vector<int> chunks = {0, 1, 7, 64, 128};
  if (short_run()) chunks = {0, 7};
  // The plain loops take 20 s for 700 tokens. The other backend runs every length in every chunking each time; these get
  // each kind of boundary once, and the chunkings on one configuration, unless NIBBLE_TEST_LONG is set.
  if (c.device == DeviceKind::kRef && !long_run()) {
    lengths = short_run() ? std::vector<int>{5, 129, 257}
                          : std::vector<int>{1, 3, 4, 5, 127, 129, 257, 700};
    if (c.config != 'c' || short_run()) chunks = {0};
  }
  const std::vector<TokenId> ids = golden.ids(0);
  for (const int length : lengths) {
    for (const int chunk : chunks) {
      if (chunk > length && chunk != 0) continue;
      RunOptions options;
      options.chunk = chunk;
      const std::vector<TokenId> prefix(ids.begin(), ids.begin() + length);
      compare(golden, 0, length, run(*golden.runner, prefix, options),
              fmt::format("{} tokens, chunk {}", length, chunk));
      if (HasFailure()) return;  // one message is enough
    }
  }
}

TEST_P(GoldenTest, OtherPromptsAndGreedyContinuation) {
  const Case c = GetParam();
  if (!has_device(c.device)) GTEST_SKIP() << "no NVIDIA GPU, or built without CUDA";
  if (short_run() && c.config != 'c')
    GTEST_SKIP() << "under a sanitizer configuration c stands for all";
  if (c.device == DeviceKind::kRef && !long_run())
    GTEST_SKIP() << "the CPU backend runs it; NIBBLE_TEST_LONG for ref as well";
  Golden golden(c.config, c.device);
  for (const int prompt : {1, 2}) {
    const std::vector<TokenId> ids = golden.ids(prompt);
    compare(golden, prompt, static_cast<int>(ids.size()), run(*golden.runner, ids, {}),
            fmt::format("prompt {}", prompt));
  }
  for (const int prompt : {0, 1, 2}) {
    const auto expected = golden.file.ints(fmt::format("prompt{}.greedy.ids", prompt));
    const auto margins = golden.file.floats(fmt::format("prompt{}.greedy.margins", prompt));
    const std::vector<TokenId> found =
        greedy(*golden.runner, golden.ids(prompt), static_cast<int>(expected.size()));
    for (std::size_t i = 0; i < expected.size(); ++i) {
      if (margins[i] <= kGreedyMargin) break;  // after a near tie the texts may part
      EXPECT_EQ(found[i], expected[i]) << "prompt " << prompt << " token " << i;
    }
  }
}

TEST_P(GoldenTest, MtpBlock) {
  const Case c = GetParam();
  if (!has_device(c.device)) GTEST_SKIP() << "no NVIDIA GPU, or built without CUDA";
  if (short_run() && c.config != 'c')
    GTEST_SKIP() << "under a sanitizer configuration c stands for all";
  Golden golden(c.config, c.device);
  const GoldenFile mtp(std::string(1, c.config) + "_mtp.safetensors");
  const int prompt = c.device == DeviceKind::kRef ? 2 : 1;
  const std::string p = fmt::format("prompt{}.", prompt);
  std::vector<TokenId> ids = golden.ids(prompt);
  const auto count = static_cast<int>(ids.size());
  ids.push_back(golden.file.ints(p + "greedy.ids")[0]);  // the token after the last position
  const std::int64_t hc_d = 4L * golden.file.shape(p + "streams.layer0")[2];
  const std::vector<std::int32_t> positions = golden.file.ints(p + "positions");
  for (const int chunk : {0, 64}) {
    if (c.device == DeviceKind::kRef && chunk != 0 && !long_run()) continue;
    RunOptions options;
    options.chunk = chunk;
    options.drafter = true;
    const Trace trace = run(*golden.runner, ids, options);
    const auto logits = mtp.floats(p + "mtp1.logits"), streams = mtp.floats(p + "mtp1.streams");
    const std::int64_t vocab = mtp.shape(p + "mtp1.logits")[1];
    Worst worst;
    for (std::size_t i = 0; i < positions.size(); ++i) {
      const auto at = static_cast<std::size_t>(positions[i]);
      const auto row = static_cast<std::int64_t>(i);
      const std::string place = fmt::format("mtp1 chunk {} position {}", chunk, at);
      ASSERT_LT(positions[i], count);
      compare_streams(trace.mtp1_streams[at], streams.data() + row * hc_d, place);
      compare_logprobs(trace.mtp1_logits[at], logits.data() + row * vocab, place, worst);
    }
    EXPECT_LE(worst.difference, kWorstLogprob) << worst.where;
    EXPECT_LE(worst.mean(), kMeanLogprob);

    // One token further, from the block's own streams: a step up to each position, and one of a row behind it, which the next
    // step overwrites.
    const auto next2 = mtp.ints(p + "mtp2.next_ids");
    const auto logits2 = mtp.floats(p + "mtp2.logits");
    Worst worst2;
    ops::Backend& backend = golden.runner->backend();
    model::DeepseekV4& model = golden.runner->model();
    const std::vector<std::int32_t> pages = all_pages(*golden.runner);
    for (std::size_t i = 0; i < positions.size(); ++i) {
      const std::int32_t begin = i == 0 ? 0 : positions[i - 1] + 1, rows = positions[i] + 1 - begin;
      const auto from = [&](int first) {
        return std::span<const TokenId>(ids).subspan(static_cast<std::size_t>(first),
                                                     static_cast<std::size_t>(rows));
      };
      const ops::Segment segments[] = {{0, rows, 0, begin}};
      golden.runner->forward({from(begin), segments, pages});
      model.forward_mtp({from(begin + 1), segments}, golden.runner->cache(), model.streams(rows));
      const TokenId next[] = {next2[i]};
      const ops::Segment further[] = {{0, 1, 0, positions[i] + 1}};
      const std::int32_t last[] = {rows - 1};
      model.forward_mtp({next, further}, golden.runner->cache(), model.mtp_streams(last));
      std::vector<float> found(static_cast<std::size_t>(vocab));
      backend.download(model.mtp_logits(model.mtp_streams(1)),
                       std::as_writable_bytes(std::span(found)));
      compare_logprobs(found, logits2.data() + static_cast<std::int64_t>(i) * vocab,
                       fmt::format("mtp2 position {}", positions[i]), worst2);
    }
    EXPECT_LE(worst2.difference, kWorstLogprob) << worst2.where;
    EXPECT_LE(worst2.mean(), kMeanLogprob);
  }
}

class DsparkTest : public ::testing::TestWithParam<DeviceKind> {};

// A draft after each dumped position, whatever the chunks in which the rings were filled. A draft leaves its own rows behind the
// position; those of the positions that follow take their places.
TEST_P(DsparkTest, BlockAfterBlock) {
  if (!has_device(GetParam())) GTEST_SKIP() << "no NVIDIA GPU, or built without CUDA";
  const GoldenFile file("d_dspark.safetensors");
  const ScratchFolder folder;
  const auto runner = load_random(folder, golden_spec('d'), GetParam(), Activations::kExact, 2);
  ASSERT_TRUE(runner->info().drafting);
  ASSERT_EQ(runner->limits().max_draft, 5);
  const std::vector<TokenId> ids = file.ints("prompt0.ids"), next = file.ints("prompt0.next_ids");
  const std::vector<std::int32_t> positions = file.ints("prompt0.positions"),
                                  tokens = file.ints("prompt0.dspark.tokens");
  const auto logits = file.floats("prompt0.dspark.logits"),
             confidence = file.floats("prompt0.dspark.confidence");
  const std::size_t vocab = static_cast<std::size_t>(runner->info().vocab_size), block = 5;
  const std::vector<std::int32_t> pages = all_pages(*runner);
  const bool slow = GetParam() == DeviceKind::kRef && !long_run();
  for (const int chunk : slow ? std::vector<int>{300} : std::vector<int>{300, 9, 64}) {
    const int slot = chunk == 9 ? 1 : 0;
    int done = 0;
    Worst worst;
    for (std::size_t i = 0; i < positions.size(); ++i) {
      for (int rows; done <= positions[i]; done += rows) {
        rows = std::min(chunk, positions[i] + 1 - done);
        const std::array segments{ops::Segment{0, rows, slot, done}};
        const ops::Batch batch{
            std::span(ids).subspan(static_cast<std::size_t>(done), static_cast<std::size_t>(rows)),
            segments, pages};
        runner->forward(batch);
        runner->draft(batch, {}, 0);
      }
      std::vector<float> found;
      model::Taps taps;
      taps.proposed = [&](std::span<const float> all) { found.assign(all.begin(), all.end()); };
      taps.streams = [&](int layer, const tensor::View& view) {
        const std::string name = fmt::format("prompt0.dspark.streams.stage{}", layer - 4);
        if (!file.has(name)) return;
        std::vector<float> streams(static_cast<std::size_t>(view.shape.elements()));
        runner->backend().download(view, std::as_writable_bytes(std::span(streams)));
        compare_streams(streams, file.floats(name).data() + i * streams.size(),
                        fmt::format("chunk {} position {} layer {}", chunk, positions[i], layer));
      };
      const model::DsparkStart start[] = {{slot, positions[i], next[i]}};
      const model::DsparkDraft draft =
          runner->model().draft_dspark(start, static_cast<int>(block), runner->cache(), taps);
      for (std::size_t j = 0; j < block; ++j) {
        const std::string place =
            fmt::format("chunk {} position {} candidate {}", chunk, positions[i], j);
        EXPECT_EQ(draft.tokens[j], tokens[i * block + j]) << place;
        EXPECT_NEAR(draft.confidence[j], confidence[i * block + j], 2e-4) << place;
        const auto row = found.begin() + static_cast<std::ptrdiff_t>(j * vocab);
        compare_logprobs({row, row + static_cast<std::ptrdiff_t>(vocab)},
                         logits.data() + (i * block + j) * vocab, place, worst);
      }
      if (HasFailure()) return;
    }
    EXPECT_LE(worst.difference, kWorstLogprob) << worst.where;
    EXPECT_LE(worst.mean(), kMeanLogprob);
    if (flag("NIBBLE_TEST_VERBOSE"))
      fmt::print("chunk {}: logprob worst {:.2e} mean {:.2e}\n", chunk, worst.difference,
                 worst.mean());
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, DsparkTest,
                         ::testing::Values(DeviceKind::kRef, DeviceKind::kCpu, DeviceKind::kCuda),
                         [](const auto& param) { return std::string(device_name(param.param)); });

INSTANTIATE_TEST_SUITE_P(Configs, GoldenTest,
                         ::testing::Values(Case{'a', DeviceKind::kRef}, Case{'b', DeviceKind::kRef},
                                           Case{'c', DeviceKind::kRef}, Case{'a', DeviceKind::kCpu},
                                           Case{'b', DeviceKind::kCpu}, Case{'c', DeviceKind::kCpu},
                                           Case{'a', DeviceKind::kCuda},
                                           Case{'b', DeviceKind::kCuda},
                                           Case{'c', DeviceKind::kCuda}),
                         case_name);

// The same weights in other widths and spellings: the specification decodes a row before it multiplies, so it gives the same
// bits whatever the file looks like.
TEST(GoldenStorage, EveryStorageAndSpellingGivesTheSameBits) {
  const Golden published('c', DeviceKind::kRef);
  std::vector<TokenId> ids = published.ids(1);
  ids.resize(40);
  const Trace expected = run(*published.runner, ids, {});
  const struct {
    Storage storage;
    Spelling spelling;
    const char* name;
  } others[] = {{Storage::kBf16, Spelling::kDeepSeek, "bf16"},
                {Storage::kF32, Spelling::kDeepSeek, "f32"},
                {Storage::kBf16, Spelling::kTransformers, "bf16, transformers names"},
                {Storage::kF32, Spelling::kTransformers, "f32, transformers names"}};
  for (const auto& other : others) {
    const Golden again('c', DeviceKind::kRef, other.storage, other.spelling);
    EXPECT_TRUE(run(*again.runner, ids, {}).logits == expected.logits) << other.name;
  }
}

}  // namespace
}  // namespace nibble::testing
