// The model as a scheduler drives it: steps in any cut, pages in any order, tokens taken back, state put aside and taken up
// elsewhere. Nothing of that may change a bit, of the drafter's logits neither. Random choices come from a seed that is printed
// (NIBBLE_TEST_SEED).
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <numeric>
#include <random>

#include "golden/model_under_test.h"
#include "nibble/status.h"
#include "ops/testing/op_cases.h"
#include "sample/sampler.h"

namespace nibble {
namespace {

using engine::DraftRow;
using engine::ModelRunner;
using Ids = std::vector<TokenId>;
using Rows = std::vector<std::vector<float>>;  // logits of the target and then of the drafter

bool short_run() {
  return std::getenv("NIBBLE_TEST_SHORT") != nullptr;
}

// A sequence in a slot of the model.
struct Walk {
  ModelRunner& runner;
  int slot;
  std::vector<std::int32_t> pages;

  // Feeds ids [begin, end) in one step and shows the drafter the tokens of `truth` that follow, 0 behind its last.
  Rows feed(const Ids& ids, int begin, int end, const Ids& truth) const {
    const std::int64_t rows = end - begin;
    const ops::Segment segments[] = {{0, end - begin, slot, begin}};
    const Ids step(ids.begin() + begin, ids.begin() + end), next = followers(truth, begin, end);
    Rows out(static_cast<std::size_t>(rows));
    runner.forward({step, segments, pages});
    append(out, runner.model().logits(0, rows));
    runner.draft({next, segments, pages}, {}, 0);
    append(out, runner.model().mtp_logits(runner.model().mtp_streams(rows)));
    return out;
  }
  Rows feed(const Ids& ids, int begin, int end) const { return feed(ids, begin, end, ids); }

  static Ids followers(const Ids& truth, int begin, int end) {
    Ids next;
    for (auto i = static_cast<std::size_t>(begin) + 1; i <= static_cast<std::size_t>(end); ++i)
      next.push_back(i < truth.size() ? truth[i] : 0);
    return next;
  }

 private:
  void append(Rows& rows, const tensor::View& logits) const {
    std::vector<float> host(static_cast<std::size_t>(logits.shape.elements()));
    runner.backend().download(logits, std::as_writable_bytes(std::span(host)));
    const auto vocab = static_cast<std::ptrdiff_t>(runner.info().vocab_size);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const auto row = host.begin() + static_cast<std::ptrdiff_t>(i) * vocab;
      rows[i].insert(rows[i].end(), row, row + vocab);
    }
  }
};

struct Case {
  DeviceKind device;
  Activations activations;
};

class StepModelTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const auto [device, activations] = GetParam();
    if (!testing::has_device(device)) GTEST_SKIP() << "no NVIDIA GPU, or built without CUDA";
    if (short_run() && (device == DeviceKind::kRef || activations == Activations::kExact))
      GTEST_SKIP() << "under a sanitizer the CPU backend's release stands for all";
    runner_ = testing::load_random(folder_, testing::golden_spec('c'), device, activations, 2);
    random_.seed(ops::testing::case_seed());
    // The plain loops take 10 ms a token.
    ids_ = tokens(device == DeviceKind::kRef || short_run() ? 300 : 600);
    std::vector<std::int32_t> all(static_cast<std::size_t>(runner_->limits().pages));
    std::iota(all.begin(), all.end(), 0);
    std::shuffle(all.begin(), all.end(), random_);
    walks_.push_back({*runner_, 0, {all.begin(), all.begin() + 4}});
    walks_.push_back({*runner_, 1, {all.begin() + 4, all.begin() + 8}});
  }

  int integer(int low, int high) { return std::uniform_int_distribution(low, high)(random_); }
  Ids tokens(int count) {
    Ids out(static_cast<std::size_t>(count));
    for (TokenId& id : out) id = integer(0, runner_->info().vocab_size - 1);
    return out;
  }
  int size() const { return static_cast<int>(ids_.size()); }

  // Feeds [begin, end) in random pieces and compares with those rows of `expected`.
  void feed_and_compare(const Walk& walk, int begin, int end, const Rows& expected) {
    while (begin < end) {
      const int rows = std::min(end - begin, integer(1, integer(0, 2) == 0 ? 200 : 12));
      const Rows found = walk.feed(ids_, begin, begin + rows);
      ASSERT_NO_FATAL_FAILURE(compare(found, rows, begin, expected));
      begin += rows;
    }
  }
  static void compare(const Rows& found, int rows, int position, const Rows& expected) {
    for (int i = 0; i < rows; ++i)
      ASSERT_TRUE(found[static_cast<std::size_t>(i)] ==
                  expected[static_cast<std::size_t>(position + i)])
          << "position " << position + i << " in a step from " << position << ", seed "
          << ops::testing::case_seed();
  }

  const testing::ScratchFolder folder_;
  std::unique_ptr<ModelRunner> runner_;
  std::mt19937_64 random_;
  Ids ids_;
  std::vector<Walk> walks_;  // with four pages each, in random order
};

TEST_P(StepModelTest, CutsAndPagesDoNotMatter) {
  const Rows whole = walks_[0].feed(ids_, 0, size());
  for (const int rows : {1, 9, 10, 130, 257}) {
    if (rows == 1 && (GetParam().device == DeviceKind::kRef || short_run())) continue;
    for (int begin = 0; begin < size(); begin += rows) {
      const int end = std::min(begin + rows, size());
      const Rows found = walks_[1].feed(ids_, begin, end);
      ASSERT_NO_FATAL_FAILURE(compare(found, end - begin, begin, whole)) << "steps of " << rows;
    }
  }
}

// Rows that a verification brings and that are not kept: the next step has never heard of them.
TEST_P(StepModelTest, WhatIsTakenBackLeavesNoTrace) {
  const Rows whole = walks_[0].feed(ids_, 0, size());
  int done = size() - 100;
  walks_[1].feed(ids_, 0, done, ids_);
  while (done + 4 < size()) {
    // Some true tokens, then others; as many as may be taken back.
    const int kept = integer(1, 4), wrong = integer(0, ops::kDraftSlack);
    Ids step(ids_.begin(), ids_.begin() + done + kept);
    const Ids others = tokens(wrong);
    step.insert(step.end(), others.begin(), others.end());
    const Rows found = walks_[1].feed(step, done, done + kept + wrong, ids_);
    ASSERT_NO_FATAL_FAILURE(compare(found, kept, done, whole));
    done += kept;
  }
}

TEST_P(StepModelTest, SavedAnywhereAndTakenUpElsewhere) {
  const Rows whole = walks_[0].feed(ids_, 0, size());
  const auto& [walk, other] = std::tie(walks_[0], walks_[1]);
  struct Saved {
    int position;
    std::vector<std::byte> bytes;
  };
  std::vector<Saved> saved;
  const auto save = [&](int position) {
    const auto page = static_cast<std::size_t>(position / ops::kPageTokens);
    saved.push_back({position, runner_->save(0, position,
                                             position % ops::kPageTokens ? walk.pages[page] : -1)});
    EXPECT_EQ(static_cast<std::int64_t>(saved.back().bytes.size()), runner_->saved_bytes(position));
  };
  // At boundaries, and along the way at what has been seen or up to kDraftSlack tokens behind it.
  save(0);
  int seen = 0;
  const auto go_to = [&](int position) {
    feed_and_compare(walk, seen, position, whole);
    seen = position;
  };
  for (const int boundary : {5, 127, 131, 256, 259}) {
    ASSERT_NO_FATAL_FAILURE(go_to(boundary));
    save(boundary);
  }
  while (seen < size() - 20) {
    ASSERT_NO_FATAL_FAILURE(go_to(std::min(seen + integer(1, 90), size())));
    save(seen - integer(0, ops::kDraftSlack));
  }
  for (const Saved& state : saved) {
    // Into a slot and a page that others have used; full pages are shared.
    const int noise = integer(1, 200), full = state.position / ops::kPageTokens;
    other.feed(tokens(noise), 0, noise);
    Walk again{*runner_, 1, {walk.pages.begin(), walk.pages.begin() + full}};
    again.pages.insert(again.pages.end(), other.pages.begin(), other.pages.end());
    runner_->restore(1, state.position, other.pages[0], state.bytes);
    const int end = std::min(size(), state.position + integer(1, 140));
    ASSERT_NO_FATAL_FAILURE(feed_and_compare(again, state.position, end, whole))
        << "taken up at " << state.position;
  }
}

TEST_P(StepModelTest, DraftsFeedOnThemselvesAndLeaveNoTrace) {
  const Rows whole = walks_[0].feed(ids_, 0, size());
  ASSERT_EQ(runner_->limits().max_draft, 4);
  int done = 140;
  walks_[1].feed(ids_, 0, done, ids_);
  while (done + 12 < size() && done < 240) {
    const int rows = integer(1, 12), last = done + rows - 1, depth = integer(1, 4);
    const Rows found = walks_[1].feed(ids_, done, done + rows);
    ASSERT_NO_FATAL_FAILURE(compare(found, rows, done, whole));
    const ops::Segment segments[] = {{0, rows, 1, done}};
    const DraftRow row[] = {{0, rows - 1}};
    const Ids next = Walk::followers(ids_, done, done + rows);
    const Ids proposed = runner_->draft({next, segments, walks_[1].pages}, row, depth);
    // By hand: the first is the best of the row's logits, each further one of a step at the next position from the streams of
    // the one before.
    const auto best = [&](const auto& logits) {
      return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    };
    const auto vocab = static_cast<std::ptrdiff_t>(runner_->info().vocab_size);
    const std::vector<float>& both = found.back();
    Ids expected{best(std::span(both).subspan(static_cast<std::size_t>(vocab)))};
    model::DeepseekV4& model = runner_->model();
    runner_->draft({next, segments, walks_[1].pages}, {}, 0);
    tensor::View streams = model.mtp_streams(rows).rows(rows - 1, 1);
    while (static_cast<int>(expected.size()) < depth) {
      const Ids token{expected.back()};
      const ops::Segment further[] = {{0, 1, 1, last + static_cast<int>(expected.size())}};
      model.forward_mtp({token, further}, runner_->cache(), streams);
      streams = model.mtp_streams(1);
      std::vector<float> logits(static_cast<std::size_t>(vocab));
      runner_->backend().download(model.mtp_logits(streams),
                                  std::as_writable_bytes(std::span(logits)));
      expected.push_back(best(logits));
    }
    EXPECT_EQ(proposed, expected) << "position " << last << ", depth " << depth;
    done += rows;
  }
}

// Two sequences in one step, drafted for at other rows than their last ones.
TEST_P(StepModelTest, DraftsOfSequencesTogetherAreThoseAlone) {
  const std::array<Ids, 2> ids{tokens(150), tokens(40)};
  const std::array<int, 2> kept{147, 36};
  std::array<Ids, 2> alone;
  for (std::size_t s = 0; s < 2; ++s) {
    const int rows = static_cast<int>(ids[s].size());
    walks_[s].feed(ids[s], 0, rows);
    const ops::Segment segments[] = {{0, rows, static_cast<int>(s), 0}};
    const DraftRow row[] = {{0, kept[s] - 1}};
    alone[s] =
        runner_->draft({Walk::followers(ids[s], 0, rows), segments, walks_[s].pages}, row, 3);
  }
  Ids step, next;
  std::vector<ops::Segment> segments;
  std::vector<DraftRow> rows;
  std::vector<std::int32_t> pages;
  for (const std::size_t s : {1u, 0u}) {
    const auto first = static_cast<int>(step.size()), count = static_cast<int>(ids[s].size());
    segments.push_back({first, count, static_cast<int>(s), 0, static_cast<int>(pages.size())});
    rows.push_back({static_cast<int>(rows.size()), first + kept[s] - 1});
    const Ids follow = Walk::followers(ids[s], 0, count);
    step.insert(step.end(), ids[s].begin(), ids[s].end());
    next.insert(next.end(), follow.begin(), follow.end());
    pages.insert(pages.end(), walks_[s].pages.begin(), walks_[s].pages.end());
  }
  runner_->forward({step, segments, pages});
  Ids expected = alone[1];
  expected.insert(expected.end(), alone[0].begin(), alone[0].end());
  EXPECT_EQ(runner_->draft({next, segments, pages}, rows, 3), expected);
}

TEST_P(StepModelTest, DrawsAndScoresTheRowsAskedFor) {
  walks_[0].feed(ids_, 0, 20);
  const std::vector<float> logits = [&] {
    const std::span<const float> found = runner_->logits(0, 20);
    return std::vector<float>(found.begin(), found.end());
  }();
  const auto vocab = static_cast<std::size_t>(runner_->info().vocab_size);
  const auto row = [&](std::size_t i) { return std::span(logits).subspan(i * vocab, vocab); };
  // Of greedy rows without log-probabilities only ids come to the host; wherever they stand, everybody gets what the sampler
  // gives on the host.
  SamplingParams warm, told, greedy, biased;
  warm.seed = 7;
  told.temperature = greedy.temperature = biased.temperature = 0.0f;
  told.logprobs = 2;
  biased.logit_bias = {{5, 100.0f}};
  for (int round = 0; round < 20; ++round) {
    std::vector<engine::DrawRow> wanted;
    const int count = integer(1, 12), kinds = round == 0 ? 0 : 3;
    for (int i = 0; i < count; ++i) {
      const SamplingParams* const params[] = {&greedy, &warm, &told, &biased};
      wanted.push_back({integer(0, 19), {params[integer(0, kinds)], 20u + i}});
    }
    const auto drawn = runner_->draw(wanted);
    ASSERT_EQ(drawn.size(), wanted.size());
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const auto expected =
          sample::draw(row(static_cast<std::size_t>(wanted[i].row)), wanted[i].draw);
      EXPECT_EQ(drawn[i]->token, expected->token);
      EXPECT_EQ(drawn[i]->logprob, expected->logprob);
      EXPECT_EQ(drawn[i]->top.size(), expected->top.size());
    }
  }

  const Ids scored{5, 0, 9};
  const auto scores = runner_->score(11, scored, 1);
  ASSERT_EQ(scores.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(scores[i].token, scored[i]);
    EXPECT_EQ(scores[i].logprob, sample::logprobs(row(11 + i), scored[i], 1).chosen);
    EXPECT_EQ(scores[i].top.size(), 1u);
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, StepModelTest,
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

TEST(TotalTokens, SetThePagesAndBoundASequence) {
  const testing::ScratchFolder folder;
  testing::write_random_checkpoint(folder.path(), testing::RandomCheckpointSpec{});
  EngineOptions options;
  options.model_dir = folder.path().string();
  options.device = DeviceKind::kCpu;
  options.threads = 1;
  options.max_model_len = 600;
  const auto whole = ModelRunner::load(options, 3, nullptr);
  EXPECT_EQ(whole->limits().pages, 9);
  options.max_total_tokens = 1025;
  const auto fewer = ModelRunner::load(options, 3, nullptr);
  EXPECT_EQ(fewer->limits().pages, 5);
  EXPECT_EQ(fewer->info().max_model_len, 600);
  EXPECT_LT(fewer->info().cache_bytes, whole->info().cache_bytes);
  options.max_total_tokens = 512;
  EXPECT_THROW(ModelRunner::load(options, 3, nullptr), Error);
  options.max_model_len = 0;
  EXPECT_EQ(ModelRunner::load(options, 3, nullptr)->info().max_model_len, 512);
  options.draft = false;
  EXPECT_EQ(ModelRunner::load(options, 3, nullptr)->limits().max_draft, 0);
}

}  // namespace
}  // namespace nibble
