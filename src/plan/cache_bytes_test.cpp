#include "plan/cache_bytes.h"

#include <gtest/gtest.h>

#include "kv/cache.h"
#include "ops/ref/ref_backend.h"
#include "plan/testing/published.h"

namespace nibble::plan {
namespace {

constexpr CacheLayout kBare{1, 0};
constexpr double kGiB = 1 << 30;

model::ModelConfig config(const char* name) {
  return testing::published(name).config;
}

// deepseek-v4.md 9.1.
TEST(CacheBytes, MarginalBytesATokenAreThePublishedFigures) {
  const struct {
    const char* model;
    double fp4_keys, fp8_keys, bf16;
  } cases[] = {{"DeepSeek-V4-Flash", 3514.25, 3850.25, 6880},
               {"DeepSeek-V4-Pro", 5031.4, 5511.4, 9848}};
  for (const auto& c : cases) {
    RowSizes rows = row_sizes(config(c.model), KvDtype::kFp8);
    EXPECT_EQ(rows.row, 584);
    EXPECT_EQ(rows.index_key, 68);
    EXPECT_NEAR(marginal_bytes(config(c.model), rows), c.fp4_keys, 0.05);
    rows.index_key = 132;  // FP8 keys with one scale
    EXPECT_NEAR(marginal_bytes(config(c.model), rows), c.fp8_keys, 0.05);
    EXPECT_NEAR(marginal_bytes(config(c.model), row_sizes(config(c.model), KvDtype::kBf16)), c.bf16,
                0.05);
  }
}

TEST(CacheBytes, AMillionTokensAndTheFixedPartOfASequence) {
  const auto flash = config("DeepSeek-V4-Flash"), pro = config("DeepSeek-V4-Pro");
  const auto bytes = [](const model::ModelConfig& c) {
    return sequence_bytes(c, row_sizes(c, KvDtype::kFp8), kBare, 1 << 20, 1);
  };
  EXPECT_NEAR(static_cast<double>(bytes(flash).entries) / kGiB, 3.43, 0.005);
  EXPECT_NEAR(static_cast<double>(bytes(pro).entries) / kGiB, 4.91, 0.005);
  EXPECT_EQ(bytes(flash).windows, 43 * 128 * 584);
  EXPECT_EQ(bytes(pro).windows, 61 * 128 * 584);
  EXPECT_EQ(bytes(flash).open_state, 21 * 81'920 + 20 * 524'288);
  EXPECT_NEAR(static_cast<double>(bytes(flash).open_state) / 1e6, 12.2, 0.05);
  EXPECT_NEAR(static_cast<double>(bytes(pro).open_state) / 1e6, 18.7, 0.05);
  EXPECT_EQ(bytes(flash).draft, 128 * 584);
}

TEST(CacheBytes, ADecodedTokenReadsThePublishedMegabytes) {
  const struct {
    const char* model;
    std::int64_t context;
    double mb;
  } cases[] = {{"DeepSeek-V4-Flash", 4 << 10, 11.3},   {"DeepSeek-V4-Flash", 32 << 10, 24.2},
               {"DeepSeek-V4-Flash", 128 << 10, 68.2}, {"DeepSeek-V4-Flash", 1 << 20, 479.5},
               {"DeepSeek-V4-Pro", 4 << 10, 25.2},     {"DeepSeek-V4-Pro", 32 << 10, 43.8},
               {"DeepSeek-V4-Pro", 128 << 10, 107.9},  {"DeepSeek-V4-Pro", 1 << 20, 705.6}};
  for (const auto& c : cases) {
    const auto model = config(c.model);
    EXPECT_NEAR(
        static_cast<double>(read_bytes(model, row_sizes(model, KvDtype::kFp8), c.context)) / 1e6,
        c.mb, 0.06)
        << c.model << " at " << c.context;
  }
}

TEST(CacheBytes, PagesRoundTheContextUp) {
  const auto flash = config("DeepSeek-V4-Flash");
  const RowSizes rows = row_sizes(flash, KvDtype::kFp8);
  const auto entries = [&](std::int64_t context) {
    return sequence_bytes(flash, rows, kCacheLayout, context, 0).entries;
  };
  // A page of 256 tokens: 64 rows and keys a CSA layer, 2 rows an HCA layer.
  EXPECT_EQ(entries(1), 21 * 64 * (584 + 68) + 20 * 2 * 584);
  EXPECT_EQ(entries(256), entries(1));
  EXPECT_EQ(entries(257), 2 * entries(1));
}

// The plan is about kv::Cache itself.
TEST(CacheBytes, ASequenceTakesWhatTheCacheAllocates) {
  model::ModelConfig c = config("DeepSeek-V4-Flash");
  c.compress_ratios = {0, 4, 128, 4, 128, 4, 0};
  c.num_layers = 6;
  for (const KvDtype dtype : {KvDtype::kFp32, KvDtype::kBf16, KvDtype::kFp8}) {
    ops::Numerics numerics;
    using ops::RowFormat;
    numerics.kv_rows = dtype == KvDtype::kFp32   ? RowFormat::kF32
                       : dtype == KvDtype::kBf16 ? RowFormat::kBf16
                                                 : RowFormat::kFp8Nope;
    numerics.index_rows = dtype == KvDtype::kFp8 ? RowFormat::kFp4Index : numerics.kv_rows;
    for (const int context : {1, 127, 1000, 4096}) {
      ops::ref::RefBackend backend(numerics);
      kv::CacheSpec spec;
      spec.slots = 3;
      spec.pages = 3 * ((context + 255) / 256);
      spec.window = c.sliding_window;
      spec.head_dim = c.head_dim;
      spec.index_head_dim = c.index_head_dim;
      spec.ratios = c.compress_ratios;
      const SequenceBytes one = sequence_bytes(c, row_sizes(c, dtype), kCacheLayout, context, 1);
      const kv::Cache cache(backend, spec);
      EXPECT_EQ(3 * (one.entries + one.windows + one.open_state + one.draft), cache.bytes())
          << context << " tokens, dtype " << static_cast<int>(dtype);
      EXPECT_EQ(one.snapshot, cache.saved_bytes(2 * ops::kPageTokens));
    }
  }
}

TEST(CacheBytes, KeysOfAQueryFollowTheVisibilityRules) {
  const auto flash = config("DeepSeek-V4-Flash");
  // Position 0 sees itself in every layer and no entry; 3 closes the first CSA entry, 127 the first HCA entry.
  EXPECT_DOUBLE_EQ(keys_at(flash, 0).attended, 43);
  EXPECT_DOUBLE_EQ(keys_at(flash, 3).attended, 43 * 4 + 21);
  EXPECT_DOUBLE_EQ(keys_at(flash, 127).attended, 43 * 128 + 21 * 32 + 20);
  // At a million tokens: 640 keys in a CSA layer, 8320 in an HCA layer (3.3).
  EXPECT_DOUBLE_EQ(keys_at(flash, (1 << 20) - 1).attended, 2 * 128 + 21 * 640 + 20 * 8320);
  EXPECT_DOUBLE_EQ(keys_at(flash, (1 << 20) - 1).scored, 21.0 * (1 << 18));
  double sum = 0;
  for (int t = 0; t < 300; ++t) sum += keys_at(flash, t).attended;
  EXPECT_NEAR(mean_keys(flash, 300).attended, sum / 300, 1e-9);
}

}  // namespace
}  // namespace nibble::plan
