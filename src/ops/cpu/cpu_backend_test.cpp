// What the CPU backend says about itself, what it refuses, and inputs at the edge of what it takes.
#include "ops/cpu/cpu_backend.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "nibble/status.h"
#include "ops/ref/ref_backend.h"

namespace nibble::ops::cpu {
namespace {

using Floats = std::vector<float>;
using quant::Format;
using tensor::DType;
using tensor::View;

View put(Backend& b, const Floats& values, const tensor::Shape& shape) {
  return b.upload(std::span<const float>(values), shape);
}

class CpuOps : public ::testing::Test {
 protected:
  ThreadPool pool{1};  // no other thread: the death tests fork
  CpuBackend b{Numerics{}, pool};
};
using CpuOpsDeathTest = CpuOps;

TEST_F(CpuOps, NamesItsKernelsAndTheirUnit) {
  const CpuBackend portable(Numerics{}, pool, Isa::kPortable);
  EXPECT_EQ(portable.description(), "cpu (portable, 1 thread)");
  EXPECT_EQ(portable.kernel(OpKind::kLinear, Format::kMxfp4).name, "cpu.linear.portable");
  EXPECT_EQ(portable.kernel(OpKind::kLinear, Format::kMxfp4).unit, "scalar");
  if (detect_isa() != Isa::kAvx2) GTEST_SKIP() << "no AVX2 here";
  EXPECT_EQ(b.description(), "cpu (AVX2, 1 thread)");
  EXPECT_EQ(b.kernel(OpKind::kExperts, Format::kMxfp4).name, "cpu.routed_experts.avx2");
  EXPECT_EQ(b.kernel(OpKind::kExperts, Format::kMxfp4).unit, "vector");
}

TEST_F(CpuOps, RefusesADamagedWeight) {
  quant::HostMatrix m = quant::encode_matrix(Format::kFp8Block128, 2, 3, Floats(6, 1.0f));
  m.data.data()[4] = std::byte{0x7F};
  try {
    b.upload(std::move(m));
    FAIL() << "accepted";
  } catch (const CheckpointError& error) {
    EXPECT_NE(std::string(error.what()).find("row 1, column 1"), std::string::npos) << error.what();
  }
}

// Both backends on one query with one key and the given sink.
TEST_F(CpuOps, ASinkFarAboveTheScoresLeavesNothing) {
  ref::RefBackend reference{Numerics{}};
  const std::vector<TokenId> ids{0};
  const std::vector<Segment> segments{{0, 1, 0, 0}};
  for (Backend* backend : {static_cast<Backend*>(&b), static_cast<Backend*>(&reference)}) {
    RowPool window{nullptr, RowFormat::kF32, 8, 1, 1 + kDraftSlack};
    window.data = static_cast<std::byte*>(backend->allocate(DType::kF32, {9, 8}).data);
    RowPool step{nullptr, RowFormat::kF32, 8, 1, 1};
    step.data = static_cast<std::byte*>(put(*backend, Floats(8, 1.0f), {1, 8}).data);
    for (const float sink : {-1000.0f, 1000.0f}) {
      const View o = put(*backend, Floats(8, std::nanf("")), {1, 1, 8});
      backend->sparse_attention({.batch = {ids, segments},
                                 .q = put(*backend, Floats(8, 1.0f), {1, 1, 8}),
                                 .step = step,
                                 .window_rows = window,
                                 .window = 1,
                                 .entries = {},
                                 .ratio = 0,
                                 .selected = {},
                                 .sink = put(*backend, {sink}, {1}),
                                 .scale = 1.0f,
                                 .rope = {},
                                 .o = o});
      for (int i = 0; i < 8; ++i) EXPECT_EQ(o.f32()[i], sink < 0 ? 1.0f : 0.0f) << sink;
    }
  }
}

TEST_F(CpuOps, PassesNanOnToItsRowAlone) {
  const Floats weights(2560, 0.5f);
  Floats x(192, 1.0f);
  x[64 + 7] = std::nanf("");
  const View y = put(b, Floats(120, 0.0f), {3, 40});
  b.linear({put(b, x, {3, 64}), b.upload(quant::encode_matrix(Format::kBF16, 40, 64, weights)), y});
  for (int r = 0; r < 40; ++r) {
    EXPECT_EQ(y.f32()[r], 32.0f);
    EXPECT_TRUE(std::isnan(y.f32()[40 + r]));
    EXPECT_EQ(y.f32()[80 + r], 32.0f);
  }
}

TEST_F(CpuOpsDeathTest, RefusesATokenOutsideTheTable) {
  const Matrix table = b.upload(quant::encode_matrix(Format::kBF16, 3, 4, Floats(12, 1.0f)));
  const std::vector<TokenId> ids{0, 3};
  const View streams = b.allocate(DType::kF32, {2, 1, 4});
  EXPECT_DEATH(b.embed({ids, table, streams}), "token id 3 of 3");
}

TEST_F(CpuOpsDeathTest, RefusesAnotherShape) {
  const Matrix w = b.upload(quant::encode_matrix(Format::kF32, 3, 4, Floats(12, 1.0f)));
  const View x = b.allocate(DType::kF32, {2, 5}), y = b.allocate(DType::kF32, {2, 3});
  EXPECT_DEATH(b.linear({x, w, y}), "linear.x: shape \\[2, 5\\], expected \\[2, 4\\]");
}

TEST_F(CpuOpsDeathTest, RefusesAnExpertThatIsNotThere) {
  const auto matrix = [&] {
    return b.upload(quant::encode_matrix(Format::kF32, 4, 4, Floats(16, 1.0f)));
  };
  const ExpertWeights expert{matrix(), matrix(), matrix()};
  const std::vector<ExpertWeights> routed{expert, expert};
  const std::vector<std::int32_t> chosen{2};
  const View x = b.allocate(DType::kF32, {1, 4});
  EXPECT_DEATH(b.routed_experts({x, b.upload(std::span<const std::int32_t>(chosen), {1, 1}),
                                 put(b, {1.0f}, {1, 1}), routed, expert, 1.0f,
                                 b.allocate(DType::kF32, {1, 4})}),
               "expert 2 of 2");
}

// A ring in which going back by kDraftSlack tokens would find overwritten rows.
TEST_F(CpuOpsDeathTest, RefusesAWindowRingThatIsTooShort) {
  ref::RefBackend reference{Numerics{}};
  const std::vector<TokenId> ids(3, 0);
  const std::vector<Segment> segments{{0, 3, 0, 10}};
  for (Backend* backend : {static_cast<Backend*>(&b), static_cast<Backend*>(&reference)}) {
    RowPool window{nullptr, RowFormat::kF32, 8, 1, 11};
    window.data = static_cast<std::byte*>(backend->allocate(DType::kF32, {11, 8}).data);
    const View q = backend->allocate(DType::kF32, {3, 1, 8});
    EXPECT_DEATH(backend->sparse_attention({.batch = {ids, segments},
                                            .q = q,
                                            .step = window,
                                            .window_rows = window,
                                            .window = 4,
                                            .entries = {},
                                            .ratio = 0,
                                            .selected = {},
                                            .sink = put(*backend, {0.0f}, {1}),
                                            .scale = 1.0f,
                                            .rope = {},
                                            .o = backend->allocate(DType::kF32, {3, 1, 8})}),
                 "window of 4 in a ring of 11 rows");
  }
}

// A table that ends before the last entry, and ones that name pages which are not there.
TEST_F(CpuOpsDeathTest, RefusesPagesThatAreNotThere) {
  ref::RefBackend reference{Numerics{}};
  const std::vector<TokenId> ids(1, 0);
  const std::vector<Segment> segments{{0, 1, 0, 11, 1}};  // six entries of ratio 2: two pages
  for (Backend* backend : {static_cast<Backend*>(&b), static_cast<Backend*>(&reference)}) {
    PagedPool keys{nullptr, RowFormat::kF32, 8, 4, 3};
    keys.data = static_cast<std::byte*>(backend->allocate(DType::kF32, {12, 8}).data);
    const auto select = [&](const std::vector<std::int32_t>& pages) {
      backend->index_select({{ids, segments, pages},
                             backend->allocate(DType::kF32, {1, 1, 8}),
                             backend->allocate(DType::kF32, {1, 1}),
                             {},
                             2,
                             keys,
                             2,
                             backend->allocate(DType::kI32, {1, 2})});
    };
    select({9, 3, 0, 9});
    EXPECT_DEATH(select({0, 3}), "6 entries from page 1 of a table of 2 on");
    EXPECT_DEATH(select({0, 3, 4}), "pages 3 to 4 in a pool of 4");
    EXPECT_DEATH(select({0, -1, 2}), "pages -1 to 2 in a pool of 4");
  }
}

}  // namespace
}  // namespace nibble::ops::cpu
