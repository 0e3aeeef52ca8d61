// The law of this backend: a row's result does not depend on the rows beside it, on how a prompt is
// cut into steps, on the number of threads or on the processor's instructions. Bit for bit.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <random>

#include "ops/cpu/cpu_backend.h"

namespace nibble::ops::cpu {
namespace {

using Floats = std::vector<float>;
using quant::Format;

constexpr Numerics kExact{};
constexpr Numerics kRelease{true, RowFormat::kFp8Nope, RowFormat::kFp4Index};

Floats normal(std::uint32_t seed, std::int64_t count, float deviation = 1.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> draw(0.0f, deviation);
  Floats out(static_cast<std::size_t>(count));
  for (float& x : out) x = draw(random);
  return out;
}

Floats rows_of(const Floats& x, std::int64_t begin, std::int64_t count, std::int64_t width) {
  return Floats(x.begin() + begin * width, x.begin() + (begin + count) * width);
}

// One backend with a small model's weights: a compressed sparse attention layer and its experts,
// run over a sequence in steps of any size. The same seed gives the same weights in each.
class Layer {
 public:
  static constexpr std::int64_t kD = 96, kHeads = 3, kHd = 128, kIndexHeads = 3, kIndexWidth = 64;
  static constexpr std::int64_t kRatio = 4, kTopk = 5, kWindow = 11, kHc = 4, kExperts = 6,
                                kChosen = 2;
  static constexpr std::int64_t kInner = 64, kMaxStep = 400, kVocab = 50, kPairs = 16;
  // Pages of 13 entries, two sequences' mixed.
  static constexpr std::int64_t kPageRows = 13, kPages = 9;

  Layer(Numerics numerics, int threads, Isa isa = detect_isa())
      : pool_(threads), b_(numerics, pool_, isa) {
    const auto matrix = [&](Format format, std::int64_t rows, std::int64_t cols) {
      return b_.upload(quant::encode_matrix(
          format, rows, cols,
          normal(++seed_, rows * cols, 1.5f / std::sqrt(static_cast<float>(cols)))));
    };
    embed_ = matrix(Format::kBF16, kVocab, kD);
    wq_ = matrix(Format::kFp8Block128, kHeads * kHd, kD);
    wkv_ = matrix(Format::kFp8Block128, kHd, kD);
    wo_ = matrix(Format::kFp8Block128, kD, kHd);
    for (int i = 0; i < 2; ++i) {
      compress_[i] = matrix(Format::kBF16, 2 * kHd, kD);
      index_compress_[i] = matrix(Format::kF32, 2 * kIndexWidth, kD);
    }
    index_q_ = matrix(Format::kFp8Block128, kIndexHeads * kIndexWidth, kD);
    index_weights_ = matrix(Format::kBF16, kIndexHeads, kD);
    gate_ = matrix(Format::kBF16, kExperts, kD);
    for (int e = 0; e <= kExperts; ++e) {
      // A format each, the shared expert last.
      constexpr Format kMix[kExperts + 1] = {Format::kMxfp4,      Format::kNvfp4, Format::kInt4G32,
                                             Format::kFp8Block32, Format::kBF16,  Format::kMxfp4,
                                             Format::kFp8Block128};
      const Format format = kMix[e];
      experts_.push_back(
          {matrix(format, kInner, kD), matrix(format, kInner, kD), matrix(format, kD, kInner)});
    }
    site_ = {view({(2 + kHc) * kHc, kHc * kD}, 0.1f), view({(2 + kHc) * kHc}), view({3})};
    norm_ = view({kD});
    kv_norm_ = view({kHd});
    index_norm_ = view({kIndexWidth});
    ape_ = view({kRatio, 2 * kHd});
    index_ape_ = view({kRatio, 2 * kIndexWidth});
    sink_ = view({kHeads});
    bias_ = view({kExperts}, 0.3f);
    rope_ = {view({kPairs}).f32(), kPairs};
    window_ = row_pool(numerics.kv_rows, 2, kWindow + kDraftSlack);
    step_ = row_pool(numerics.kv_rows, 1, kMaxStep);
    entries_ = paged_pool(numerics.kv_rows, kHd);
    keys_ = paged_pool(numerics.index_rows, kIndexWidth);
    for (int i = 0; i < 2 * kPages; ++i) pages_.push_back((i * 5 + 3) % (2 * kPages));
    state_ = state_pool(2 * kHd);
    index_state_ = state_pool(2 * kIndexWidth);
  }

  // Two sequences side by side when `slots` has two; the rows' outputs and choices.
  struct Result {
    Floats streams, y;
    std::vector<std::int32_t> selected, experts;
    friend bool operator==(const Result&, const Result&) = default;
  };

  Result step(std::vector<Segment> segments) {
    for (Segment& seg : segments) seg.first_page = static_cast<std::int32_t>(seg.slot * kPages);
    std::vector<TokenId> ids;
    for (const Segment& seg : segments)
      for (int i = 0; i < seg.rows; ++i)
        ids.push_back((seg.slot * 17 + (seg.position + i) * 7) % kVocab);
    const Batch batch{ids, segments, pages_};
    const std::int64_t n = batch.rows();
    const auto f32 = [&](const tensor::Shape& shape) {
      return b_.allocate(tensor::DType::kF32, shape);
    };
    const auto i32 = [&](const tensor::Shape& shape) {
      return b_.allocate(tensor::DType::kI32, shape);
    };
    const tensor::View streams = f32({n, kHc, kD}), x = f32({n, kD}), out = f32({n, kD});
    const HcPending pending{{}, f32({n, kHc}), f32({n, kHc, kHc})};
    const HcConstants constants{1e-6f, 1e-6f, 20};
    b_.embed({ids, embed_, streams});
    b_.hc_boundary({streams, pending, site_, norm_, constants, x});
    const tensor::View q = f32({n, kHeads, kHd}), kv = f32({n, kHd});
    b_.linear({x, wq_, q.reshape({n, kHeads * kHd}), true});
    b_.query_norm_rope({batch, q, 1e-6f, rope_});
    b_.linear({x, wkv_, kv, true});
    b_.window_insert({batch, kv, kv_norm_, 1e-6f, rope_, step_, window_});
    compress(batch, x, compress_, ape_, kv_norm_, state_, entries_);
    compress(batch, x, index_compress_, index_ape_, index_norm_, index_state_, keys_);
    const tensor::View index_q = f32({n, kIndexHeads, kIndexWidth});
    const tensor::View weights = f32({n, kIndexHeads}), selected = i32({n, kTopk});
    b_.linear({x, index_q_, index_q.reshape({n, kIndexHeads * kIndexWidth}), true});
    b_.linear({x, index_weights_, weights});
    b_.index_select({batch, index_q, weights, rope_, kRatio, keys_, kTopk, selected});
    const tensor::View o = f32({n, kHeads, kHd});
    b_.sparse_attention(
        {batch, q, step_, window_, kWindow, entries_, kRatio, selected, sink_, 0.1f, rope_, o});
    b_.window_commit({batch, step_, window_});
    const tensor::View u = f32({n, kD});
    b_.grouped_linear({o.reshape({n, kHeads * kHd}), wo_, kHeads, u});
    b_.hc_boundary({streams, {u, pending.post, pending.comb}, site_, norm_, constants, x});
    const tensor::View experts = i32({n, kChosen}), expert_weights = f32({n, kChosen});
    b_.route({x, gate_, bias_, {}, ids, 1.5f, experts, expert_weights});
    b_.routed_experts({x, experts, expert_weights, std::span(experts_).first(kExperts),
                       experts_.back(), 5.0f, out});
    b_.hc_expand({streams, {out, pending.post, pending.comb}});
    return {floats(streams), floats(out), ints(selected), ints(experts)};
  }

  // A sequence of `length` tokens in the given slot, in steps of `step_rows`.
  Result run(int slot, int length, int step_rows) {
    Result all;
    for (int at = 0; at < length; at += step_rows) {
      const Result part = step({{0, std::min(step_rows, length - at), slot, at}});
      append(all, part);
    }
    return all;
  }

  static void append(Result& all, const Result& part) {
    all.streams.insert(all.streams.end(), part.streams.begin(), part.streams.end());
    all.y.insert(all.y.end(), part.y.begin(), part.y.end());
    all.selected.insert(all.selected.end(), part.selected.begin(), part.selected.end());
    all.experts.insert(all.experts.end(), part.experts.begin(), part.experts.end());
  }

 private:
  tensor::View view(const tensor::Shape& shape, float deviation = 1.0f) {
    return b_.upload(std::span<const float>(normal(++seed_, shape.elements(), deviation)), shape);
  }
  RowPool row_pool(RowFormat format, std::int64_t slots, std::int64_t rows) {
    RowPool pool{nullptr, format, kHd, slots, rows};
    pool.data = static_cast<std::byte*>(b_.allocate(tensor::DType::kU8, {pool.bytes()}).data);
    return pool;
  }
  PagedPool paged_pool(RowFormat format, int width) {
    PagedPool pool{nullptr, format, width, 2 * kPages, kPageRows};
    pool.data = static_cast<std::byte*>(b_.allocate(tensor::DType::kU8, {pool.bytes()}).data);
    return pool;
  }
  StatePool state_pool(int width) {
    StatePool state;
    state.slots = 2;
    state.ring = 2 * kRatio + kDraftSlack;
    state.width = width;
    const tensor::Shape shape{2, state.ring, width};
    state.values = b_.allocate(tensor::DType::kF32, shape).f32();
    state.gates = b_.allocate(tensor::DType::kF32, shape).f32();
    return state;
  }
  void compress(const Batch& batch, const tensor::View& x, const Matrix (&w)[2],
                const tensor::View& ape, const tensor::View& norm, const StatePool& state,
                const PagedPool& entries) {
    const tensor::Shape shape{batch.rows(), state.width};
    const tensor::View values = b_.allocate(tensor::DType::kF32, shape);
    const tensor::View gates = b_.allocate(tensor::DType::kF32, shape);
    b_.linear({x, w[0], values, false, false});
    b_.linear({x, w[1], gates, false, false});
    b_.compress({batch, values, gates, ape, norm, 1e-6f, rope_, kRatio, true, state, entries});
  }
  Floats floats(const tensor::View& v) { return Floats(v.f32(), v.f32() + v.shape.elements()); }
  std::vector<std::int32_t> ints(const tensor::View& v) {
    return {v.i32(), v.i32() + v.shape.elements()};
  }

  ThreadPool pool_;
  CpuBackend b_;
  std::uint32_t seed_ = 100;
  Matrix embed_, wq_, wkv_, wo_, index_q_, index_weights_, gate_, compress_[2], index_compress_[2];
  std::vector<ExpertWeights> experts_;
  HcSite site_;
  tensor::View norm_, kv_norm_, index_norm_, ape_, index_ape_, sink_, bias_;
  RopeTable rope_;
  RowPool window_, step_;
  PagedPool entries_, keys_;
  std::vector<std::int32_t> pages_;
  StatePool state_, index_state_;
};

class BatchInvariance : public ::testing::TestWithParam<Numerics> {};
INSTANTIATE_TEST_SUITE_P(Numerics, BatchInvariance, ::testing::Values(kExact, kRelease),
                         [](const auto& param) {
                           return param.param.release ? "Release" : "Exact";
                         });

// NIBBLE_TEST_SHORT: under sanitizers.
int prompt_length() {
  return std::getenv("NIBBLE_TEST_SHORT") ? 101 : 397;
}

TEST_P(BatchInvariance, OneShotEqualsChunksAndTokens) {
  const int length = prompt_length();
  const Layer::Result whole = Layer(GetParam(), 2).run(0, length, length);
  for (const int step_rows : {1, 7, 64, 128}) {
    const Layer::Result pieces = Layer(GetParam(), 2).run(0, length, step_rows);
    EXPECT_TRUE(pieces == whole) << "steps of " << step_rows;
  }
  // The numbers are numbers, and the choice has something to choose from.
  for (const float y : whole.y) ASSERT_TRUE(std::isfinite(y));
  EXPECT_GE(whole.selected.back(), Layer::kTopk);
}

TEST_P(BatchInvariance, ThreadsDoNotMatter) {
  const int length = prompt_length();
  for (const int step_rows : {1, length}) {
    const Layer::Result one = Layer(GetParam(), 1).run(0, length, step_rows);
    for (const int threads : {2, 3, 5})
      EXPECT_TRUE(Layer(GetParam(), threads).run(0, length, step_rows) == one)
          << threads << " threads, steps of " << step_rows;
  }
}

TEST_P(BatchInvariance, InstructionsDoNotMatter) {
  if (detect_isa() == Isa::kPortable) GTEST_SKIP() << "only the portable kernels run here";
  EXPECT_TRUE(Layer(GetParam(), 2, Isa::kPortable).run(0, 60, 20) ==
              Layer(GetParam(), 2).run(0, 60, 20));
}

TEST_P(BatchInvariance, NeighboursDoNotMatter) {
  // Slot 1 alone, and in steps that it shares with slot 0 at another position.
  const Layer::Result alone = Layer(GetParam(), 2).run(1, 40, 4);
  Layer shared(GetParam(), 2);
  shared.run(0, 33, 33);
  Layer::Result second;
  for (int at = 0; at < 40; at += 4) {
    const int others = 1 + at % 5;
    const Layer::Result both = shared.step({{0, others, 0, 33 + at * 2}, {others, 4, 1, at}});
    Layer::append(second, {rows_of(both.streams, others, 4, Layer::kHc * Layer::kD),
                           rows_of(both.y, others, 4, Layer::kD),
                           {both.selected.begin() + others * Layer::kTopk, both.selected.end()},
                           {both.experts.begin() + others * Layer::kChosen, both.experts.end()}});
  }
  EXPECT_TRUE(second == alone);
}

}  // namespace
}  // namespace nibble::ops::cpu
