// Decode steps as CUDA graphs: the same bits as kernel by kernel, in every bucket, and padding rows leave no trace. Two runners of
// one checkpoint get the same steps, one of them without graphs. Skipped where there is no GPU. NIBBLE_TEST_SEED repeats a run.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <random>

#include "golden/model_under_test.h"
#include "ops/testing/op_cases.h"
#ifdef NIBBLE_CUDA
#include "ops/cuda/cuda_backend.h"
#endif

namespace nibble {
namespace {

using engine::ModelRunner;
using Ids = std::vector<TokenId>;

constexpr int kSequences = 17, kSlots = kSequences + 1;  // one slot is nobody's
constexpr int kLength = 1280;                            // buckets of 1024 and of 2048 tokens
constexpr int kPages = kLength / ops::kPageTokens;
constexpr int kWidest = 8;

struct Sequence {
  int slot = 0, length = 0;
  std::vector<std::int32_t> pages;
};

struct Step {
  Ids ids, next;
  std::vector<ops::Segment> segments;
  std::vector<std::int32_t> pages;
  std::vector<engine::DraftRow> draft_rows;

  ops::Batch batch() const { return {ids, segments, pages}; }
};

class StepGraphTest : public ::testing::TestWithParam<Activations> {
 protected:
  void SetUp() override {
    if (!testing::has_device(DeviceKind::kCuda))
      GTEST_SKIP() << "no NVIDIA GPU, or built without CUDA";
    random_.seed(ops::testing::case_seed());
    testing::write_random_checkpoint(folder_.path(), testing::golden_spec('c'));
    EngineOptions options;
    options.model_dir = folder_.path().string();
    options.device = DeviceKind::kCuda;
    options.activations = GetParam();
    options.max_model_len = kLength;
    graphs_ = ModelRunner::load(options, kSlots, nullptr);
    options.graphs = false;
    eager_ = ModelRunner::load(options, kSlots, nullptr);
    std::vector<std::int32_t> all(static_cast<std::size_t>(graphs_->limits().pages));
    std::iota(all.begin(), all.end(), 0);
    std::shuffle(all.begin(), all.end(), random_);
    for (int i = 0; i < kSequences; ++i)
      sequences_.push_back({i, 0, {all.begin() + i * kPages, all.begin() + (i + 1) * kPages}});
    nobodys_.assign(all.begin() + kSequences * kPages, all.end());
  }

  int integer(int low, int high) { return std::uniform_int_distribution(low, high)(random_); }

  // `rows` random tokens of each of these.
  Step make_step(const std::vector<std::pair<Sequence*, int>>& parts) {
    Step step;
    for (const auto& [sequence, rows] : parts) {
      const auto first = static_cast<int>(step.ids.size());
      step.segments.push_back({first, rows, sequence->slot, sequence->length,
                               static_cast<std::int32_t>(step.pages.size())});
      step.draft_rows.push_back(
          {static_cast<int>(step.draft_rows.size()), first + integer(0, rows - 1)});
      step.pages.insert(step.pages.end(), sequence->pages.begin(), sequence->pages.end());
      for (int i = 0; i < rows; ++i) {
        step.ids.push_back(integer(0, graphs_->info().vocab_size - 1));
        step.next.push_back(integer(0, graphs_->info().vocab_size - 1));
      }
    }
    return step;
  }
  // Some of the sequences, in any order, with one to kWidest rows.
  std::vector<std::pair<Sequence*, int>> some() {
    std::vector<Sequence*> all;
    for (Sequence& sequence : sequences_) all.push_back(&sequence);
    std::shuffle(all.begin(), all.end(), random_);
    all.resize(static_cast<std::size_t>(integer(1, kSequences)));
    std::vector<std::pair<Sequence*, int>> parts;
    const int widest = integer(1, kWidest);
    for (Sequence* sequence : all) parts.emplace_back(sequence, integer(1, widest));
    return parts;
  }

  static std::vector<float> host(ModelRunner& runner, const tensor::View& view) {
    std::vector<float> out(static_cast<std::size_t>(view.shape.elements()));
    runner.backend().download(view, std::as_writable_bytes(std::span(out)));
    return out;
  }
  // Logits of all rows, then the drafter's, then what it proposes.
  struct Outcome {
    std::vector<float> logits, drafter;
    Ids proposed;
    bool operator==(const Outcome&) const = default;
  };
  static Outcome run(ModelRunner& runner, const Step& step, int depth) {
    const auto rows = static_cast<std::int64_t>(step.ids.size());
    Outcome out;
    runner.forward(step.batch());
    out.logits = host(runner, runner.model().logits(0, rows));
    const ops::Batch next{step.next, step.segments, step.pages};
    runner.draft(next, {}, 0);
    out.drafter = host(runner, runner.model().mtp_logits(runner.model().mtp_streams(rows)));
    out.proposed = runner.draft(next, step.draft_rows, depth);
    return out;
  }
  void step_both(const Step& step, int depth) {
    const Outcome expected = run(*eager_, step, depth);
    ASSERT_TRUE(run(*graphs_, step, depth) == expected)
        << step.segments.size() << " segments, " << step.ids.size() << " rows, seed "
        << ops::testing::case_seed();
  }
  void prefill() {
    for (Sequence& sequence : sequences_) {
      const int rows = integer(10, 250);
      ASSERT_NO_FATAL_FAILURE(step_both(make_step({{&sequence, rows}}), 0));
      sequence.length += rows;
    }
  }

  const testing::ScratchFolder folder_;
  std::unique_ptr<ModelRunner> graphs_, eager_;
  std::mt19937_64 random_;
  std::vector<Sequence> sequences_;
  std::vector<std::int32_t> nobodys_;  // pages
};

TEST_P(StepGraphTest, SameBitsInEveryBucketAndNothingElseIsTouched) {
  const auto poison = [](std::int64_t bytes) {
    return std::vector<std::byte>(static_cast<std::size_t>(bytes),
                                  std::byte{0xFF});  // NaN in all formats
  };
  constexpr int kPoisoned = 300;  // tokens in the slot that is nobody's: rings are full
  for (const std::int32_t page : nobodys_)
    graphs_->restore_page(page, poison(graphs_->page_bytes()));
  graphs_->restore(kSlots - 1, kPoisoned, nobodys_[0], poison(graphs_->saved_bytes(kPoisoned)));

  ASSERT_NO_FATAL_FAILURE(prefill());
  const int rounds = std::getenv("NIBBLE_TEST_SHORT") ? 12 : 80;
  for (int round = 0; round < rounds; ++round) {
    // One long sequence takes the batches with it into the next bucket of contexts.
    if (round == rounds / 2) {
      Sequence& grown = sequences_[3];
      while (grown.length < 1020) {
        const int rows = std::min(200, 1020 - grown.length);
        ASSERT_NO_FATAL_FAILURE(step_both(make_step({{&grown, rows}}), 0));
        grown.length += rows;
      }
    }
    const auto parts = some();
    const Step step = make_step(parts);
    ASSERT_NO_FATAL_FAILURE(step_both(step, integer(0, 4))) << "round " << round;
    if (round % 5 == 0) {
      ASSERT_NO_FATAL_FAILURE(step_both(step, 4)) << "again, round " << round;
    }
    for (const auto& [sequence, rows] : parts)
      if (sequence->length + 2 * kWidest < kLength) sequence->length += integer(1, rows);
  }

  for (const std::int32_t page : nobodys_)
    EXPECT_EQ(graphs_->save_page(page), poison(graphs_->page_bytes())) << "page " << page;
  EXPECT_EQ(graphs_->save(kSlots - 1, kPoisoned, nobodys_[0]),
            poison(graphs_->saved_bytes(kPoisoned)));
  for (const Sequence& s : sequences_) {
    for (const std::int32_t page : s.pages)
      EXPECT_EQ(graphs_->save_page(page), eager_->save_page(page)) << "page " << page;
    const std::int32_t open = s.pages[static_cast<std::size_t>(s.length / ops::kPageTokens)];
    EXPECT_EQ(graphs_->save(s.slot, s.length, open), eager_->save(s.slot, s.length, open))
        << "slot " << s.slot;
  }
#ifdef NIBBLE_CUDA
  const auto graphs = [](ModelRunner& runner) -> const ops::cuda::StepGraphs& {
    return dynamic_cast<ops::cuda::CudaBackend&>(runner.backend()).graphs();
  };
  EXPECT_GT(graphs(*graphs_).launches(), static_cast<std::uint64_t>(rounds));
  EXPECT_GT(graphs(*graphs_).held(), 8u);
  EXPECT_LE(graphs(*graphs_).held(), ops::cuda::StepGraphs::kMost);
  EXPECT_EQ(graphs(*eager_).held(), 0u);
  std::printf("%zu graphs held, %llu launches\n", graphs(*graphs_).held(),
              static_cast<unsigned long long>(graphs(*graphs_).launches()));
#endif
}

INSTANTIATE_TEST_SUITE_P(Numerics, StepGraphTest,
                         ::testing::Values(Activations::kExact, Activations::kRelease),
                         [](const ::testing::TestParamInfo<Activations>& tested) {
                           return tested.param == Activations::kExact ? "exact" : "release";
                         });

}  // namespace
}  // namespace nibble
