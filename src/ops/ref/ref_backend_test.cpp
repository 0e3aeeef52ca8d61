// The specification against numbers worked out by hand or printed in deepseek-v4.md: what the op
// table cannot see, since it compares backends with this one.
#include "ops/ref/ref_backend.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "ops/ref/rounding.h"

namespace nibble::ops::ref {
namespace {

using Floats = std::vector<float>;
using Ints = std::vector<std::int32_t>;
using quant::Format;
using tensor::DType;
using tensor::View;

class RefOps : public ::testing::Test {
 protected:
  View put(const Floats& values, const tensor::Shape& shape) {
    return b.upload(std::span<const float>(values), shape);
  }
  View zeros(const tensor::Shape& shape) { return b.allocate(DType::kF32, shape); }
  Matrix matrix(Format format, std::int64_t rows, std::int64_t cols, const Floats& values) {
    return b.upload(quant::encode_matrix(format, rows, cols, values));
  }
  static Floats floats(const View& v) { return Floats(v.f32(), v.f32() + v.shape.elements()); }
  static Ints ints(const View& v) { return Ints(v.i32(), v.i32() + v.shape.elements()); }
  // A pool of fp32 rows, slot after slot.
  RowPool pool(const Floats& rows, int width, std::int64_t slots, std::int64_t rows_per_slot) {
    RowPool out{nullptr, RowFormat::kF32, width, slots, rows_per_slot};
    out.data = static_cast<std::byte*>(put(rows, {slots * rows_per_slot, width}).data);
    return out;
  }
  PagedPool paged(const Floats& rows, int width, std::int64_t pages, std::int64_t rows_per_page) {
    PagedPool out{nullptr, RowFormat::kF32, width, pages, rows_per_page};
    out.data = static_cast<std::byte*>(put(rows, {pages * rows_per_page, width}).data);
    return out;
  }
  RopeTable rope(const Floats& frequencies) {
    const auto pairs = static_cast<std::int64_t>(frequencies.size());
    return {put(frequencies, {pairs}).f32(), static_cast<int>(pairs)};
  }

  RefBackend b{Numerics{}};
};

void expect_near(const Floats& found, const Floats& expected, double tolerance) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(found[i], expected[i], tolerance) << "at " << i;
}

TEST_F(RefOps, SinkhornGivesThePublishedMatrix) {
  // Section 2.2: a scale of 0 leaves the base as the logits.
  Floats base(24, 0.0f);
  const Floats logits{0, 1, 2, 3, 1, 0, -1, 0.5f, 2, 2, 0, 0, -1, 0, 1, 0};
  std::copy(logits.begin(), logits.end(), base.begin() + 8);
  const View comb = zeros({1, 4, 4}), post = zeros({1, 4});
  b.hc_boundary({put({1, 2, 3, 4}, {1, 4, 1}),
                 {{}, post, comb},
                 {put(Floats(96, 1.0f), {24, 4}), put(base, {24}), put({0, 0, 0}, {3})},
                 put({1}, {1}),
                 {1e-6f, 1e-6f, 20},
                 zeros({1, 1})});
  expect_near(
      floats(comb),
      {.0346322f, .1081202f, .2912857f, .5659609f, .4830727f, .2041084f, .0744203f, .2383976f,
       .4144730f, .4760334f, .0638522f, .0456404f, .0678211f, .2117370f, .5704408f, .1500001f},
      3e-7);
  expect_near(floats(post), Floats(4, 1.0f), 1e-6);  // 2 sigmoid(0), no eps
}

TEST_F(RefOps, BoundaryExpandsByColumnsOfComb) {
  // streams[k] = post[k] * out + sum_j comb[j][k] * streams[j]: comb is read transposed.
  const View streams = put({10, 1000}, {1, 2, 1});
  b.hc_expand(
      {streams, {put({7}, {1, 1}), put({1, 2}, {1, 2}), put({0.1f, 0.2f, 0.3f, 0.4f}, {1, 2, 2})}});
  expect_near(floats(streams), {7 + 1 + 300, 14 + 2 + 400}, 1e-3);
}

TEST_F(RefOps, BoundaryMixesTheNormedStreams) {
  // Two streams of two channels, (3, 0) and (0, 4): s = 1 / sqrt(25 / 4). fn's row 0 (pre[0]) sees
  // channel 1 of stream 1, row 3 (post[1]) channel 0 of stream 0.
  Floats fn(8 * 4, 0.0f);
  fn[0 * 4 + 3] = 1.0f;
  fn[3 * 4 + 0] = 1.0f;
  const View y = zeros({1, 2}), post = zeros({1, 2});
  b.hc_boundary({put({3, 0, 0, 4}, {1, 2, 2}),
                 {{}, post, zeros({1, 2, 2})},
                 {put(fn, {8, 4}), put(Floats(8, 0.0f), {8}), put({2, 0.5f, 1}, {3})},
                 put({1, 5}, {2}),
                 {0.0f, 0.25f, 3},
                 y});
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  const double c0 = (sigmoid(2 * 4 / 2.5) + 0.25) * 3, c1 = (0.5 + 0.25) * 4;
  const double r = 1 / std::sqrt((c0 * c0 + c1 * c1) / 2);
  expect_near(floats(y), {float(c0 * r), float(c1 * r * 5)}, 1e-5);
  expect_near(floats(post), {1, float(2 * sigmoid(0.5 * 3 / 2.5))}, 1e-6);
}

TEST_F(RefOps, HeadWeighsStreams) {
  // p = sigmoid(s * (fn . f) * scale + base) + eps; two channels, so that the ratio shows.
  // f = (1, 0, 0, 1): s = 1 / sqrt(0.5). fn row 0 = f's first, row 1 = nothing.
  const View y = zeros({1, 2});
  b.hc_head({put({1, 0, 0, 1}, {1, 2, 2}),
             put({1, 0, 0, 0, 0, 0, 0, 0}, {2, 4}),
             put({0, 0.5f}, {2}),
             put({3}, {1}),
             put({1, 1}, {2}),
             {0.0f, 0.1f, 0},
             y});
  const double p0 = 1 / (1 + std::exp(-3 * std::sqrt(2.0))) + 0.1,
               p1 = 1 / (1 + std::exp(-0.5)) + 0.1;
  const double r = 1 / std::sqrt((p0 * p0 + p1 * p1) / 2);
  expect_near(floats(y), {float(p0 * r), float(p1 * r)}, 1e-6);
  b.hc_head({put({1, 0, 0, 1}, {1, 2, 2}),
             put({1, 0, 0, 0, 0, 0, 0, 0}, {2, 4}),
             put({0, 0.5f}, {2}),
             put({3}, {1}),
             {},
             {0.0f, 0.1f, 0},
             y});
  expect_near(floats(y), {float(p0), float(p1)}, 1e-6);
}

TEST_F(RefOps, MeanOfStreamsIntoItsColumns) {
  const View y = put({9, 9, 9, 9, 8, 8, 8, 8}, {2, 4});
  b.stream_mean({put({1, 2, 3, 6, -1, 0, 5, 1}, {2, 2, 2}), y, 1});
  expect_near(floats(y), {9, 2, 4, 9, 8, 2, 0.5f, 8}, 0.0);
}

TEST_F(RefOps, RouterScoresAreThePublishedOnes) {
  // Section 4: sqrtsoftplus of -2, 0, 3.
  const Matrix gate = matrix(Format::kF32, 3, 1, {-2, 0, 3});
  const View experts = b.allocate(DType::kI32, {1, 3}), weights = zeros({1, 3});
  b.route({put({1}, {1, 1}), gate, put({0, 0, 0}, {3}), {}, {}, 1.0f, experts, weights});
  const double sum = .3562696 + .8325546 + 1.7460204;
  EXPECT_EQ(ints(experts), (Ints{0, 1, 2}));
  expect_near(floats(weights),
              {float(.3562696 / sum), float(.8325546 / sum), float(1.7460204 / sum)}, 1e-7);
}

TEST_F(RefOps, RouterBiasChoosesButDoesNotWeigh) {
  const Matrix gate = matrix(Format::kF32, 4, 1, {-2, 0, 3, 0});
  const View experts = b.allocate(DType::kI32, {1, 2}), weights = zeros({1, 2});
  b.route({put({1}, {1, 1}), gate, put({2, 0, -1, 0}, {4}), {}, {}, 1.5f, experts, weights});
  // Biased: 2.36, .83, .75, .83: expert 0, and of the tie the lower.
  EXPECT_EQ(ints(experts), (Ints{0, 1}));
  const double sum = .3562696 + .8325546;
  expect_near(floats(weights), {float(1.5 * .3562696 / sum), float(1.5 * .8325546 / sum)}, 1e-6);
}

TEST_F(RefOps, HashRouterReadsTheTokensRow) {
  const Matrix gate = matrix(Format::kF32, 3, 1, {-2, 0, 3});
  const View experts = b.allocate(DType::kI32, {2, 1}), weights = zeros({2, 1});
  const Ints table{2, 0, 1};
  const std::vector<TokenId> ids{1, 0};
  b.route({put({1, 1}, {2, 1}),
           gate,
           {},
           b.upload(std::span<const std::int32_t>(table), {3, 1}),
           ids,
           1.0f,
           experts,
           weights});
  EXPECT_EQ(ints(experts), (Ints{0, 2}));
  expect_near(floats(weights), {1, 1}, 1e-7);
}

TEST_F(RefOps, ExpertsClampAsPublished) {
  // Section 4: a = min(w1 x, limit) with no lower clamp, b within both limits.
  const auto one = [&](float w1, float w3, float w2) {
    return ExpertWeights{matrix(Format::kF32, 1, 1, {w1}), matrix(Format::kF32, 1, 1, {w3}),
                         matrix(Format::kF32, 1, 1, {w2})};
  };
  const auto silu = [](double x) { return x / (1 + std::exp(-x)); };
  const std::vector<ExpertWeights> routed{one(20, 30, 1), one(-20, -30, 2)};
  const View y = zeros({1, 1});
  const Ints chosen{0, 1};
  b.routed_experts({put({1}, {1, 1}), b.upload(std::span<const std::int32_t>(chosen), {1, 2}),
                    put({0.25f, 0.5f}, {1, 2}), routed, one(1, 2, 10), 10.0f, y});
  EXPECT_NEAR(y.f32()[0], 0.25 * silu(10) * 10 + 0.5 * silu(-20) * -10 * 2 + silu(1) * 2 * 10,
              1e-5);
}

TEST_F(RefOps, RopeTurnsInterleavedTailPairs) {
  // A quarter turn a position on the second pair of four channels; channels before the tail stay.
  const RopeTable quarter = rope({0.0f, std::numbers::pi_v<float> / 2});
  Floats x{9, 8, 1, 2, 3, 4};
  rope_row(x.data(), 6, 1, quarter, 1.0f);
  expect_near(x, {9, 8, 1, 2, -4, 3}, 1e-6);
  rope_row(x.data(), 6, 1, quarter, -1.0f);
  expect_near(x, {9, 8, 1, 2, 3, 4}, 1e-6);
}

TEST_F(RefOps, SinkJoinsTheDenominatorOnly) {
  // One key (2, 0), score 3 * 2 * 0.5 = 3, sink 1: o = key * e^3 / (e^3 + e).
  const std::vector<TokenId> ids{0};
  const std::vector<Segment> segments{{0, 1, 0, 0}};
  const View o = zeros({1, 1, 2});
  b.sparse_attention({.batch = {ids, segments},
                      .q = put({3, 0}, {1, 1, 2}),
                      .step = pool({2, 0}, 2, 1, 1),
                      .window_rows = pool(Floats(18, 0.0f), 2, 1, 9),
                      .window = 1,
                      .entries = {},
                      .ratio = 0,
                      .selected = {},
                      .sink = put({1}, {1}),
                      .scale = 0.5f,
                      .rope = {},
                      .o = o});
  expect_near(floats(o), {float(2 * std::exp(3) / (std::exp(3) + std::exp(1))), 0}, 1e-6);
}

TEST_F(RefOps, QueriesSeeTheirWindowAndClosedEntries) {
  // Section 3.3 with q = 0 and a sink of -inf: o is the mean of the visible keys, each a channel of
  // its own. Window 2, ratio 3, four tokens: 0 | 0 1 | 1 2, entry 0 | 2 3, entry 0.
  const int hd = 6;
  Floats window(4 * hd, 0.0f), entries(2 * hd, 0.0f);
  for (int p = 0; p < 4; ++p) window[static_cast<std::size_t>(p * hd + p)] = 1.0f;
  for (int w = 0; w < 2; ++w) entries[static_cast<std::size_t>(w * hd + 4 + w)] = 1.0f;
  const std::vector<TokenId> ids(4, 0);
  const std::vector<Segment> segments{{0, 4, 0, 0}};
  const View o = zeros({4, 1, hd});
  const Ints table{0};
  b.sparse_attention({.batch = {ids, segments, table},
                      .q = zeros({4, 1, hd}),
                      .step = pool(window, hd, 1, 4),
                      .window_rows = pool(Floats(10 * hd, 0.0f), hd, 1, 10),
                      .window = 2,
                      .entries = paged(entries, hd, 1, 2),
                      .ratio = 3,
                      .selected = {},
                      .sink = put({-std::numeric_limits<float>::infinity()}, {1}),
                      .scale = 1.0f,
                      .rope = {},
                      .o = o});
  const float third = 1.0f / 3.0f;
  expect_near(floats(o), {1,   0,     0,     0,     0,     0,  //
                          .5f, .5f,   0,     0,     0,     0,  //
                          0,   third, third, 0,     third, 0,  //
                          0,   0,     third, third, third, 0},
              1e-6);
}

// The same in two steps: what the first one left is in the ring, and the second one's entry lies in another page.
TEST_F(RefOps, EarlierPositionsComeFromTheRingAndEntriesFromPages) {
  const int hd = 5;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  // Positions 10 and 11; window 3; ratio 4: entries 0 and 1, and 2 for the second query. Channels of positions 8, 9, 10, 11: 0,
  // 0, 1, 2; of entries 0, 1, 2: 3, 3, 4. Pages of two entries: 2 and 0. All else is NaN.
  const int ring_rows = 3 + kDraftSlack;
  Floats ring(static_cast<std::size_t>(ring_rows * hd), nan), pages(6 * hd, nan), step(2 * hd, 0);
  const auto set = [&](Floats& rows, int row, int channel) {
    for (int d = 0; d < hd; ++d) rows[static_cast<std::size_t>(row * hd + d)] = d == channel;
  };
  set(ring, 8 % ring_rows, 0);
  set(ring, 9 % ring_rows, 0);
  set(step, 0, 1);
  set(step, 1, 2);
  set(pages, 4, 3);
  set(pages, 5, 3);
  set(pages, 0, 4);
  const std::vector<TokenId> ids(2, 0);
  const std::vector<Segment> segments{{0, 2, 0, 10, 1}};
  const Ints table{7, 2, 0};
  const View o = zeros({2, 1, hd});
  b.sparse_attention({.batch = {ids, segments, table},
                      .q = zeros({2, 1, hd}),
                      .step = pool(step, hd, 1, 2),
                      .window_rows = pool(ring, hd, 1, ring_rows),
                      .window = 3,
                      .entries = paged(pages, hd, 3, 2),
                      .ratio = 4,
                      .selected = {},
                      .sink = put({-std::numeric_limits<float>::infinity()}, {1}),
                      .scale = 1.0f,
                      .rope = {},
                      .o = o});
  const float sixth = 1.0f / 6.0f;
  expect_near(floats(o),
              {.4f, .2f, 0, .4f, 0,  //
               sixth, sixth, sixth, 2 * sixth, sixth},
              1e-6);
}

TEST_F(RefOps, CompressorsPoolTheRightHalves) {
  // Sections 3.5 and 3.6 with gates that leave one row each: entry = rms_norm of that row's value.
  // Ratio 2, width 2. Overlapping: halves a of window w - 1, halves b of window w.
  const std::vector<TokenId> ids(4, 0);
  const std::vector<Segment> segments{{0, 4, 0, 0}};
  const auto run = [&](bool overlap, const Floats& values, const Floats& gates, const Floats& ape) {
    const int stored = overlap ? 4 : 2;
    StatePool state;
    state.slots = 1;
    state.ring = 4 + kDraftSlack;
    state.width = stored;
    state.values = zeros({state.ring, stored}).f32();
    state.gates = zeros({state.ring, stored}).f32();
    const PagedPool entries = paged(Floats(4, 0.0f), 2, 1, 2);
    const Ints table{0};
    b.compress({.batch = {ids, segments, table},
                .values = put(values, {4, stored}),
                .gates = put(gates, {4, stored}),
                .ape = put(ape, {2, stored}),
                .norm = put({1, 10}, {2}),
                .eps = 0.0f,
                .rope = {},
                .ratio = 2,
                .overlap = overlap,
                .state = state,
                .entries = entries});
    const auto* rows = reinterpret_cast<const float*>(entries.data);
    return Floats(rows, rows + 4);
  };
  const float s = std::sqrt(2.0f);
  // Not overlapping: ape favours the second token of each window: (0, 5) and (7, 0).
  expect_near(run(false, {1, 1, 0, 5, 1, 1, 7, 0}, Floats(8, 0.0f), {0, 0, 99, 99}),
              {0, 10 * s, s, 0}, 1e-5);
  // Overlapping, all gates equal: entry 0 is the mean of the second halves of tokens 0 and 1 alone;
  // entry 1 takes the first halves of 0 and 1 and the second halves of 2 and 3.
  expect_near(run(true, {3, 0, 1, 0, 5, 0, 1, 0, 50, 50, 0, 4, 60, 60, 0, 4}, Floats(16, 0.0f),
                  Floats(8, 0.0f)),
              {s, 0, 1, 10}, 1e-5);
}

TEST_F(RefOps, IndexerScoresReluTimesWeight) {
  // Section 3.7: dot products (1, -1), (2, 3), (-5, 1) with weights (1, -2): scores 1, -4, -2.
  const Floats keys{1, -1, 2, 3, -5, 1};
  const std::vector<TokenId> ids{0};
  const std::vector<Segment> segments{{0, 1, 0, 2}};
  const View selected = b.allocate(DType::kI32, {1, 2});
  const Ints table{0};
  b.index_select({{ids, segments, table},
                  put({1, 0, 0, 1}, {1, 2, 2}),
                  put({1, -2}, {1, 2}),
                  {},
                  1,
                  paged(keys, 2, 1, 3),
                  2,
                  selected});
  EXPECT_EQ(ints(selected), (Ints{0, 2}));
}

TEST_F(RefOps, NarrowWeightsAreDecodedAsPublished) {
  // MXFP4: the low nibble is the even column (6.1); codes 2 and 13 are 1 and -3, scale byte 128 is 2.
  quant::HostMatrix fp4 = quant::make_host_matrix(Format::kMxfp4, 1, 32);
  std::fill_n(fp4.data.data(), 16, std::byte{0});
  fp4.data.data()[1] = std::byte{0xD2};
  fp4.scales.as<std::uint8_t>()[0] = 128;
  Floats x(32, 0.0f);
  x[2] = 10.0f;
  x[3] = 100.0f;
  const View y = zeros({1, 1});
  b.linear({put(x, {1, 32}), b.upload(std::move(fp4)), y});
  EXPECT_EQ(y.f32()[0], 10.0f * 2 - 100.0f * 6);
  // FP8: 0x38 is 1; the second block of columns has scale 4.
  quant::HostMatrix fp8 = quant::make_host_matrix(Format::kFp8Block128, 1, 130);
  std::fill_n(fp8.data.data(), 130, std::byte{0x38});
  fp8.scales.as<std::uint8_t>()[0] = 127;
  fp8.scales.as<std::uint8_t>()[1] = 129;
  b.linear({put(Floats(130, 1.0f), {1, 130}), b.upload(std::move(fp8)), y});
  EXPECT_EQ(y.f32()[0], 128.0f + 2 * 4.0f);
  // NVFP4: codes 2 and 13, scale 0x44 = 3, global 0.125.
  quant::HostMatrix nvfp4 = quant::make_host_matrix(Format::kNvfp4, 1, 16);
  std::fill_n(nvfp4.data.data(), 8, std::byte{0});
  nvfp4.data.data()[1] = std::byte{0xD2};
  nvfp4.scales.as<std::uint8_t>()[0] = 0x44;
  nvfp4.global_scale = 0.125f;
  b.linear({put(Floats(x.begin(), x.begin() + 16), {1, 16}), b.upload(std::move(nvfp4)), y});
  EXPECT_EQ(y.f32()[0], (10.0f * 1 - 100.0f * 3) * 3 * 0.125f);
  // INT4: codes 15 and 0 are 7 and -8.
  quant::HostMatrix int4 = quant::make_host_matrix(Format::kInt4G32, 1, 32);
  std::fill_n(int4.data.data(), 16, std::byte{0x88});
  int4.data.data()[1] = std::byte{0x0F};
  int4.scales.as<std::uint16_t>()[0] = 0x3F00;  // 0.5
  b.linear({put(x, {1, 32}), b.upload(std::move(int4)), y});
  EXPECT_EQ(y.f32()[0], (10.0f * 7 - 100.0f * 8) * 0.5f);
}

// Release: inputs of FP8 and MXFP4 matrices lie on the FP8 grid, those of the others do not.
TEST_F(RefOps, ReleaseRoundsInputsAsTheFormatTakesThem) {
  RefBackend release{Numerics{.release = true}};
  Floats x(128, 0.0f);
  x[0] = 448.0f;
  x[1] = 1.03125f;  // bf16, but 1 on the FP8 grid beside 448
  for (const Format format : quant::kFormats) {
    Floats w(128, 0.0f);
    w[1] = 7.5f;  // INT4's scale is then 1, its largest code 7
    const quant::HostMatrix encoded = quant::encode_matrix(format, 1, 128, w);
    Floats row(128);
    quant::decode_row(encoded, 0, row);
    const View y = release.allocate(DType::kF32, {1, 1});
    release.linear({release.upload(std::span<const float>(x), {1, 128}),
                    release.upload(quant::encode_matrix(format, 1, 128, w)), y, true, false});
    const bool fp8 =
        format == Format::kFp8Block128 || format == Format::kFp8Block32 || format == Format::kMxfp4;
    EXPECT_EQ(y.f32()[0], row[1] * (fp8 ? 1.0f : 1.03125f)) << quant::format_name(format);
  }
}

TEST(RefRounding, Fp8BlocksUseThePublishedScale) {
  // 6.2: a = 500 needs s = 2, 448 needs s = 1; a floor of 1e-4 for zeros.
  Floats x{500, 3, 0.01f};
  fp8_round_blocks(x.data(), 3, 128);
  EXPECT_EQ(x, (Floats{512, 3, 0.01171875f}));  // 0.005 -> 3 * 2^-9 = 0.005859, times 2
  Floats y{448, 3.3f, -17};
  fp8_round_blocks(y.data(), 3, 128);
  EXPECT_EQ(y, (Floats{448, 3.25f, -16}));  // 17 lies halfway between 16 and 18: even
  Floats zero(5, 0.0f);
  fp8_round_blocks(zero.data(), 5, 128);
  EXPECT_EQ(zero, Floats(5, 0.0f));
}

TEST(RefRounding, HadamardIsSylvestersAndOrthogonal) {
  Floats x{1, 2, 3, 4};
  hadamard(x.data(), 4);
  EXPECT_EQ(x, (Floats{5, -1, -2, 0}));
}

}  // namespace
}  // namespace nibble::ops::ref
