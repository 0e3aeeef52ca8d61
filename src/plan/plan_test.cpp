#include "plan/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "engine/model_runner.h"
#include "model/deepseek_v4/workspace.h"
#include "nibble/status.h"
#include "ops/ref/ref_backend.h"
#include "plan/remedies.h"
#include "plan/testing/published.h"

namespace nibble::plan {
namespace {

constexpr std::int64_t kPlenty = std::int64_t{1} << 50;

const std::string kTiny = std::string(NIBBLE_SOURCE_DIR) + "/models/tiny";

ModelFacts tiny() {
  ModelFacts facts = facts_of("tiny", checkpoint::Checkpoint::open(kTiny));
  facts.here = true;
  return facts;
}

PlanOptions on(const std::string& gpu, std::int64_t context = 4096, int concurrency = 1) {
  PlanOptions options;
  options.gpu = parse_gpu(gpu);
  options.context = context;
  options.concurrency = concurrency;
  return options;
}

Plan plan(const char* model, const PlanOptions& options) {
  return make_plan(testing::published(model), options, kPlenty);
}

TEST(ParseGpu, TakesAKindAndACount) {
  EXPECT_EQ(parse_gpu("h200").count, 1);
  EXPECT_EQ(parse_gpu("rtx-pro-6000:8").count, 8);
  EXPECT_EQ(parse_gpu("rtx-pro-6000:8").machine.arch, ops::Arch::kSm120f);
  EXPECT_GT(parse_gpu("cpu").machine.capacity_bytes, 1 << 20);
  for (const char* bad : {"", ":", "h300", "H200", "h200:", "h200:0", "h200:9", "h200:-1",
                          "h200:2x", "h200: 2", "h200:2:2", "cpu:2", "h200:99999999999999999999"}) {
    try {
      parse_gpu(bad);
      ADD_FAILURE() << bad;
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::kUsage) << bad;
      EXPECT_NE(std::string(error.what()).find(bad), std::string::npos) << error.what();
    }
  }
  try {
    parse_gpu("h300");
  } catch (const Error& error) {
    for (const char* kind :
         {"h200", "h100", "b200", "rtx-pro-6000", "rtx-5090", "dgx-spark", "cpu"})
      EXPECT_NE(std::string(error.what()).find(kind), std::string::npos) << error.what();
  }
}

TEST(Machines, EveryRowIsWithinReason) {
  for (const char* kind :
       {"h200", "h100", "b200", "rtx-pro-6000", "rtx-5090", "dgx-spark", "cpu"}) {
    const auto m = find_machine(kind);
    ASSERT_TRUE(m) << kind;
    for (const double share : {m->usable, m->read_share, m->tensor_share}) {
      EXPECT_GT(share, 0.3) << kind;
      EXPECT_LE(share, 1.0) << kind;
    }
    EXPECT_GT(m->bandwidth, 1e9) << kind;
    EXPECT_LE(m->bf16, m->fp8) << kind;
    EXPECT_GT(m->launch_s, 0.0) << kind;
    EXPECT_FALSE(m->source.empty()) << kind;
  }
}

TEST(Memory, OnOneGpuTheWeightsAreTheCheckpointToTheByte) {
  const MemoryPlan m = plan("DeepSeek-V4-Flash", on("h200")).memory;
  const std::int64_t draft_window = (128 + kCacheLayout.ring_slack) * 584;
  EXPECT_EQ(m.replicated, 0);
  EXPECT_EQ(m.weights + m.draft - draft_window, 159'609'485'896);
}

TEST(Memory, UnderTensorParallelismTheSharesAddUpToTheCheckpointAndItsCopies) {
  for (const int n : {2, 4, 8}) {
    PlanOptions options = on("h200:" + std::to_string(n));
    const ModelFacts& model = testing::published("DeepSeek-V4-Flash");
    std::int64_t draft = 0, whole = 0, split = 0;
    for (const WeightGroup& g : group_weights(model).groups)
      (g.draft ? draft : g.split == Split::kWhole ? whole : split) += g.bytes;
    options.draft = false;
    const MemoryPlan m = make_plan(model, options, kPlenty).memory;
    EXPECT_EQ(m.draft, 0);
    EXPECT_EQ(m.replicated, whole);
    EXPECT_EQ(m.weights * n, split) << n;  // every split tensor of Flash divides by 2, 4 and 8
    EXPECT_EQ(whole + split + draft, 159'609'485'896);
  }
}

TEST(Memory, WhatIsHeldWholeIsWhatTheReferenceReplicates) {
  // deepseek-v4.md 3.10: wq_a, wkv, compressors; beside them router, hyper-connections, norms and tables.
  for (const WeightGroup& g : testing::published_groups("DeepSeek-V4-Flash").groups) {
    if (g.draft || g.split != Split::kWhole) continue;
    const bool expected = g.part == "attn.wq_a" || g.part == "attn.wkv" || g.vectors ||
                          g.kind == "compressors" || g.part == "attn.indexer.compressor" ||
                          g.kind == "router" || g.kind == "hyper-connections";
    EXPECT_TRUE(expected) << g.kind << " " << g.part;
  }
}

TEST(Memory, UnevenCountsTakeTheFullestGpusShare) {
  const auto config = testing::published("DeepSeek-V4-Flash").config;
  EXPECT_EQ(split_share(Split::kGroups, config, 3).mine, 3);  // of 8
  EXPECT_EQ(split_share(Split::kInner, config, 3).mine, 6);   // of 16 blocks
  EXPECT_EQ(split_share(Split::kInner, config, 3).of(1600), 600);
  EXPECT_EQ(split_share(Split::kVocab, config, 3).of(10), 4);
  const Plan uneven = plan("DeepSeek-V4-Flash", on("h200:3"));
  EXPECT_FALSE(uneven.notes.empty());
  EXPECT_TRUE(plan("DeepSeek-V4-Flash", on("h200:4")).notes.empty());
}

TEST(Memory, CacheGrowsWithContextAndConcurrencyAndIsNotSplit) {
  const auto memory = [](const std::string& gpu, std::int64_t context, int concurrency) {
    return plan("DeepSeek-V4-Flash", on(gpu, context, concurrency)).memory;
  };
  const MemoryPlan one = memory("h200:2", 4096, 1);
  EXPECT_EQ(one.kv, 4096 / 256 * (21 * 64 * 652 + 20 * 2 * 584));
  EXPECT_EQ(memory("h200:2", 8192, 1).kv, 2 * one.kv);
  EXPECT_EQ(memory("h200:2", 4096, 7).kv, 7 * one.kv);
  EXPECT_EQ(memory("h200:2", 4096, 7).state, 7 * one.state);
  EXPECT_EQ(memory("h200:8", 4096, 1).kv, one.kv);
  EXPECT_EQ(one.total(), one.weights + one.replicated + one.kv + one.state + one.workspace +
                             one.graphs + one.draft);
  EXPECT_EQ(one.snapshots, 0);
  EXPECT_EQ(one.host_snapshots, EngineOptions{}.snapshot_bytes);
  const MemoryPlan host = plan("DeepSeek-V4-Flash", on("cpu", 4096, 1)).memory;
  EXPECT_EQ(host.snapshots, EngineOptions{}.snapshot_bytes);
  EXPECT_EQ(host.host_snapshots, 0);
}

TEST(Memory, OnTheCpuTheWorkspaceIsTheModelsOwn) {
  const ModelFacts facts = tiny();
  const MemoryPlan m = make_plan(facts, on("cpu", 4096, 2), kPlenty).memory;
  ops::ref::RefBackend backend{
      ops::Numerics{true, ops::RowFormat::kFp8Nope, ops::RowFormat::kFp4Index}};
  const model::Workspace w(backend, facts.config, 512);
  std::int64_t bytes = w.window_rows.bytes();
  for (const tensor::View* view : {&w.streams,     &w.mtp_streams, &w.other_streams,
                                   &w.post,        &w.comb,        &w.x,
                                   &w.out,         &w.qr,          &w.q,
                                   &w.kv,          &w.o,           &w.u,
                                   &w.comp_values, &w.comp_gates,  &w.index_values,
                                   &w.index_gates, &w.index_q,     &w.index_weights,
                                   &w.selected,    &w.experts,     &w.expert_weights,
                                   &w.embedded,    &w.head,        &w.logits})
    bytes += view->shape.elements() * 4;
  EXPECT_EQ(m.workspace, bytes);
  EXPECT_EQ(m.graphs, 0);
}

TEST(Layers, OnTheCpuAreTheStartUpTableOfTheEngine) {
  EngineOptions engine;
  engine.model_dir = kTiny;
  engine.max_model_len = 4096;
  const auto runner = engine::ModelRunner::load(engine, 1, nullptr);
  const Plan planned = make_plan(tiny(), on("cpu"), kPlenty);
  std::map<std::pair<std::string, std::string>, const LayerRow*> rows;
  for (const LayerRow& row : planned.layers) rows[{row.kind, row.format}] = &row;
  for (const KernelChoice& loaded : runner->info().kernels) {
    const LayerRow* row = rows[{loaded.layer_kind, loaded.format}];
    ASSERT_NE(row, nullptr) << loaded.layer_kind << ", " << loaded.format;
    EXPECT_EQ(row->count, loaded.count) << loaded.layer_kind;
    EXPECT_EQ(row->bytes, loaded.bytes) << loaded.layer_kind;
    EXPECT_EQ(row->kernel, loaded.kernel) << loaded.layer_kind;
    EXPECT_EQ(row->unit, loaded.unit) << loaded.layer_kind;
  }
  const MemoryPlan& m = planned.memory;
  const std::int64_t draft_window = std::int64_t{128 + 8} * 584;
  EXPECT_EQ(m.kv + m.state + draft_window, runner->info().cache_bytes);
}

TEST(Layers, AddUpToTheCheckpointAndSayNoneYetWhereThereIsNoKernel) {
  const Plan p = plan("DeepSeek-V4-Flash", on("b200:4"));
  std::int64_t bytes = 0;
  for (const LayerRow& row : p.layers) {
    bytes += row.bytes;
    EXPECT_EQ(row.kernel, "none yet") << row.kind;
    EXPECT_EQ(row.unit, "none") << row.kind;
  }
  EXPECT_EQ(bytes, 159'609'485'896);
  EXPECT_EQ(p.layers[0].kind, "routed experts");
  EXPECT_EQ(p.layers[0].count, 43 * 256 * 3);
  EXPECT_FALSE(p.speed.measured);
}

TEST(Remedies, AreNoneWhenItFits) {
  EXPECT_TRUE(plan("DeepSeek-V4-Flash", on("h200:2")).remedies.empty());
}

TEST(Remedies, MoreOrLargerGpusWhenTheWeightsAloneAreTooMany) {
  const Plan p = plan("DeepSeek-V4-Flash", on("h200"));
  EXPECT_FALSE(p.memory.fits());
  EXPECT_EQ(p.remedies, (std::vector<std::string>{"--gpu h200:2", "--gpu b200:1"}));
  EXPECT_EQ(p.sequences_that_fit, 0);
}

TEST(Remedies, TheContextAndConcurrencyTheyNameAreTheLargestThatFit) {
  const PlanOptions asked = on("h200:2", 1 << 20, 64);
  const Plan p = plan("DeepSeek-V4-Flash", asked);
  ASSERT_FALSE(p.memory.fits());
  const auto number_after = [&](const std::string& flag) -> std::int64_t {
    for (const std::string& remedy : p.remedies)
      if (remedy.starts_with(flag)) return std::stoll(remedy.substr(flag.size()));
    ADD_FAILURE() << "no remedy begins with " << flag;
    return 1;
  };
  const std::int64_t context = number_after("--context ");
  EXPECT_TRUE(plan("DeepSeek-V4-Flash", on("h200:2", context, 64)).memory.fits());
  EXPECT_FALSE(plan("DeepSeek-V4-Flash", on("h200:2", context + 256, 64)).memory.fits());
  const auto sequences = static_cast<int>(number_after("--concurrency "));
  EXPECT_TRUE(plan("DeepSeek-V4-Flash", on("h200:2", 1 << 20, sequences)).memory.fits());
  EXPECT_FALSE(plan("DeepSeek-V4-Flash", on("h200:2", 1 << 20, sequences + 1)).memory.fits());
  EXPECT_EQ(p.sequences_that_fit, sequences);
}

TEST(Remedies, DroppingTheDraftWhenThatIsEnough) {
  // As many sequences as fit without the drafter are too many with it.
  PlanOptions options = on("rtx-pro-6000:2", 4096);
  options.draft = false;
  const ModelFacts& model = testing::published("DeepSeek-V4-Flash");
  options.concurrency =
      static_cast<int>(sequences_that_fit(model.config, group_weights(model), options));
  ASSERT_GT(options.concurrency, 0);
  EXPECT_TRUE(make_plan(model, options, kPlenty).memory.fits());
  options.draft = true;
  const Plan p = make_plan(model, options, kPlenty);
  EXPECT_FALSE(p.memory.fits());
  EXPECT_TRUE(std::ranges::any_of(
      p.remedies, [](const std::string& r) { return r.starts_with("--draft off"); }));
}

TEST(Remedies, ASmallDiskIsSaidToTheByteUnlessTheModelIsHere) {
  ModelFacts facts = testing::published("DeepSeek-V4-Flash");
  const Plan p = make_plan(facts, on("h200:2"), 83'000'000'000);
  EXPECT_TRUE(p.memory.fits());
  ASSERT_EQ(p.remedies.size(), 1u);
  EXPECT_NE(p.remedies[0].find("76609485896"), std::string::npos) << p.remedies[0];
  facts.here = true;
  EXPECT_TRUE(make_plan(facts, on("h200:2"), 83'000'000'000).remedies.empty());
}

TEST(Plan, RefusesAContextBeyondTheModel) {
  EXPECT_THROW(make_plan(tiny(), on("cpu", 8193), kPlenty), Error);
  EXPECT_NO_THROW(make_plan(tiny(), on("cpu", 8192), kPlenty));
}

TEST(Plan, RefusesAConfigItCannotCountWith) {
  const auto refused = [](auto change, const char* key) {
    ModelFacts facts = tiny();
    change(facts.config);
    try {
      make_plan(facts, on("h200"), kPlenty);
      ADD_FAILURE() << key;
    } catch (const CheckpointError& error) {
      EXPECT_NE(std::string(error.what()).find(key), std::string::npos) << error.what();
    }
  };
  refused([](model::ModelConfig& c) { c.head_dim = 64; }, "head_dim");
  refused([](model::ModelConfig& c) { c.index_head_dim = 100; }, "index_head_dim");
  refused([](model::ModelConfig& c) { c.num_heads = c.head_dim = 1 << 20; }, "large");
  refused(
      [](model::ModelConfig& c) { c.hidden_size = c.num_experts = c.experts_per_token = 1 << 20; },
      "large");
}

TEST(Plan, TextHasEveryPartAndExplainsOnlyWhenAsked) {
  const Plan p = plan("DeepSeek-V4-Flash", on("h200"));
  const std::string text = plan_text(p, false), explained = plan_text(p, true);
  for (const char* part : {"does not fit", "replicated", "none yet", "floor ms", "prefill",
                           "roofline", "--gpu h200:2", "published tensor schedule"})
    EXPECT_NE(text.find(part), std::string::npos) << part;
  EXPECT_TRUE(explained.starts_with(text));
  for (const char* part :
       {"150109880320 bytes x 0.95", "815 a step", "weights 11217.6 MB", "4800 GB/s"})
    EXPECT_NE(explained.find(part), std::string::npos) << part;
}

}  // namespace
}  // namespace nibble::plan
