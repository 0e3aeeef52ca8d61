// A DSpark drafter as a scheduler drives it: what it proposes after a position is a function of the tokens up to there, bit by bit,
// whatever the steps, the company, the tokens that were taken back and the drafts on the way. Random choices come from a seed
// that is printed (NIBBLE_TEST_SEED).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>

#include "golden/model_under_test.h"
#include "ops/testing/op_cases.h"

namespace nibble {
namespace {

using engine::DraftRow;
using engine::ModelRunner;
using Ids = std::vector<TokenId>;

constexpr int kBlock = 5;

struct Case {
  DeviceKind device;
  Activations activations;
};

// What a draft gives, for comparison bit by bit.
struct Proposals {
  Ids tokens;
  std::vector<float> logits;

  bool operator==(const Proposals&) const = default;
};

class DsparkSteps : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const auto [device, activations] = GetParam();
    if (!testing::has_device(device)) GTEST_SKIP() << "no NVIDIA GPU, or built without CUDA";
    slow_ = device == DeviceKind::kRef || std::getenv("NIBBLE_TEST_SHORT") != nullptr;
    runner_ = testing::load_random(folder_, testing::golden_spec('d'), device, activations, 2);
    pages_ = testing::all_pages(*runner_);
    random_.seed(ops::testing::case_seed());
    for (int i = 0; i < (slow_ ? 150 : 300); ++i) ids_.push_back(token());
  }

  int integer(int low, int high) { return std::uniform_int_distribution(low, high)(random_); }
  TokenId token() { return integer(0, runner_->info().vocab_size - 1); }
  int size() const { return static_cast<int>(ids_.size()); }
  TokenId next(int position) const {
    return ids_[static_cast<std::size_t>(position + 1) % ids_.size()];
  }

  // Half of the pages for each slot.
  ops::Batch batch(const Ids& step, std::vector<ops::Segment>& segments) const {
    for (ops::Segment& segment : segments)
      segment.first_page = segment.slot * static_cast<std::int32_t>(pages_.size()) / 2;
    return {step, segments, pages_};
  }
  void feed(const Ids& step, std::vector<ops::Segment> segments) {
    const ops::Batch rows = batch(step, segments);
    runner_->forward(rows);
    runner_->draft(rows, {}, 0);
  }
  // One for each start, in their order.
  std::vector<Proposals> drafts(const std::vector<model::DsparkStart>& starts, int depth = kBlock) {
    std::vector<Proposals> out(starts.size());
    const auto vocab = static_cast<std::ptrdiff_t>(runner_->info().vocab_size);
    model::Taps taps;
    taps.proposed = [&](std::span<const float> logits) {
      for (std::size_t i = 0; i < out.size(); ++i) {
        const auto row = logits.begin() + static_cast<std::ptrdiff_t>(i) * depth * vocab;
        out[i].logits.assign(row, row + depth * vocab);
      }
    };
    const Ids tokens = runner_->model().draft_dspark(starts, depth, runner_->cache(), taps).tokens;
    for (std::size_t i = 0; i < out.size(); ++i) {
      const auto row = tokens.begin() + static_cast<std::ptrdiff_t>(i) * depth;
      out[i].tokens.assign(row, row + depth);
    }
    return out;
  }
  // After each position, token by token in slot 0 alone. The plain loops take 40 ms a block.
  std::vector<Proposals> token_by_token() {
    if (GetParam().device == DeviceKind::kRef) ids_.resize(50);
    std::vector<Proposals> out;
    for (int p = 0; p < size(); ++p) {
      feed({ids_[static_cast<std::size_t>(p)]}, {{0, 1, 0, p}});
      out.push_back(drafts({{0, p, next(p)}})[0]);
    }
    return out;
  }

  const testing::ScratchFolder folder_;
  std::unique_ptr<ModelRunner> runner_;
  std::vector<std::int32_t> pages_;
  std::mt19937_64 random_;
  bool slow_ = false;
  Ids ids_;
};

TEST_P(DsparkSteps, CutsCompanyAndRejectedTokensDoNotMatter) {
  const std::vector<Proposals> alone = token_by_token();
  for (int done = 0; done < size();) {
    const int rows = std::min(size() - done, integer(1, integer(0, 3) == 0 ? 120 : 6));
    const int wrong = rows <= 4 ? integer(0, 5) : 0;
    // Slot 1 has these ids; slot 0 another sequence that keeps pace. What is wrong is taken back.
    Ids step(ids_.begin() + done, ids_.begin() + done + rows);
    for (int i = 0; i < wrong; ++i) step.push_back(token());
    for (int i = 0; i < rows; ++i) step.push_back(token());
    feed(step, {{0, rows + wrong, 1, done}, {rows + wrong, rows, 0, done}});
    done += rows;
    const model::DsparkStart mine{1, done - 1, next(done - 1)}, other{0, done - 1, token()};
    const bool first = integer(0, 1) == 0;
    const auto found = first ? drafts({mine, other})[0] : drafts({other, mine})[1];
    ASSERT_TRUE(found == alone[static_cast<std::size_t>(done - 1)])
        << "position " << done - 1 << ", seed " << ops::testing::case_seed();
  }
}

TEST_P(DsparkSteps, FewerCandidatesAreTheFirstOnes) {
  feed({ids_.begin(), ids_.begin() + 140}, {{0, 140, 0, 0}});
  const Ids all = drafts({{0, 139, next(139)}})[0].tokens;
  for (int depth = 1; depth < kBlock; ++depth)
    EXPECT_EQ(drafts({{0, 139, next(139)}}, depth)[0].tokens,
              Ids(all.begin(), all.begin() + depth));
}

TEST_P(DsparkSteps, TheStepInterfaceProposesAfterTheKeptRow) {
  ASSERT_EQ(runner_->limits().max_draft, kBlock);
  const int rows = 20, kept = 17;
  const Ids step(ids_.begin(), ids_.begin() + rows);
  Ids followers(ids_.begin() + 1, ids_.begin() + rows + 1);
  std::vector<ops::Segment> segments = {{0, rows, 1, 0}};
  runner_->forward(batch(step, segments));
  const DraftRow row[] = {{0, kept - 1}};
  const Ids found = runner_->draft(batch(followers, segments), row, 3);
  EXPECT_EQ(found, drafts({{1, kept - 1, next(kept - 1)}}, 3)[0].tokens);
}

TEST_P(DsparkSteps, SavedStateDraftsTheSame) {
  const int position = 137;
  feed({ids_.begin(), ids_.begin() + position + 3}, {{0, position + 3, 0, 0}});
  const Proposals expected = drafts({{0, position - 1, next(position - 1)}})[0];
  const auto half = static_cast<std::int32_t>(pages_.size()) / 2;
  const std::vector<std::byte> bytes = runner_->save(0, position, pages_[0]);
  runner_->restore(1, position, pages_[static_cast<std::size_t>(half)], bytes);
  EXPECT_TRUE(drafts({{1, position - 1, next(position - 1)}})[0] == expected);
}

INSTANTIATE_TEST_SUITE_P(Backends, DsparkSteps,
                         ::testing::Values(Case{DeviceKind::kRef, Activations::kExact},
                                           Case{DeviceKind::kCpu, Activations::kExact},
                                           Case{DeviceKind::kCpu, Activations::kRelease},
                                           Case{DeviceKind::kCuda, Activations::kExact},
                                           Case{DeviceKind::kCuda, Activations::kRelease}),
                         [](const ::testing::TestParamInfo<Case>& tested) {
                           return std::string(testing::device_name(tested.param.device)) +
                                  (tested.param.activations == Activations::kExact ? "_exact"
                                                                                   : "_release");
                         });

}  // namespace
}  // namespace nibble
