// What went wrong in other engines when they took one format for another (quantization.md 2.4), each row
// that concerns loading.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/served.h"
#include "nibble/status.h"

namespace nibble::testing {
namespace {

using quant::Format;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

struct Served {
  std::unique_ptr<ScratchFolder> folder = std::make_unique<ScratchFolder>();
  std::unique_ptr<engine::ModelRunner> runner;
  Trace trace;
};

Served serve(const Layout& layout) {
  Served out;
  write_layout(out.folder->path(), layout);
  out.runner = load(out.folder->path());
  out.trace = run(*out.runner, prompt(), {.chunk = 16, .drafter = out.runner->model().has_mtp()});
  return out;
}

// The native weights of the same seed.
const Served& native() {
  static const Served served = serve(make_layout("deepseek"));
  return served;
}

void expect_native(const Served& served) {
  EXPECT_LT(worst_difference(served.trace.logits, native().trace.logits), 2e-4);
  EXPECT_LT(worst_difference(served.trace.mtp1_logits, native().trace.mtp1_logits), 2e-4);
}

TEST(FieldFailures, Nvfp4TreatedAsFp8BecauseQuantMethodSaysSo) {
  Layout layout = make_layout("nvidia-nvfp4");
  layout.checkpoint.remove_config("expert_dtype");
  const Served served = serve(layout);
  EXPECT_EQ(format_of(*served.runner, "routed experts"), "NVFP4");
  EXPECT_THAT(served.runner->info().notes,
              Contains(AllOf(HasSubstr("quant_method is fp8"), HasSubstr("NVFP4"),
                             HasSubstr("the tensors win"))));
  expect_native(served);
}

TEST(FieldFailures, Mxfp4DraftDecodedAsTheTargetsNvfp4) {
  const Served served = serve(make_layout("nvidia-nvfp4"));
  EXPECT_EQ(format_of(*served.runner, "routed experts"), "NVFP4");
  EXPECT_EQ(format_of(*served.runner, "MTP routed experts"), "MXFP4");
  expect_native(served);  // the drafter's logits among them: acceptance does not collapse
}

TEST(FieldFailures, Nvfp4KernelGivenMxfp4Data) {
  Layout layout = make_layout("deepseek");
  layout.files.emplace_back("hf_quant_config.json",
                            R"({"quantization":{"moe_quant_algo":"NVFP4","group_size":16}})");
  const Served served = serve(layout);
  EXPECT_EQ(format_of(*served.runner, "routed experts"), "MXFP4");
  EXPECT_THAT(served.runner->info().notes,
              Contains(AllOf(HasSubstr("moe_quant_algo is NVFP4"), HasSubstr("MXFP4"))));
  expect_native(served);
}

TEST(FieldFailures, MixedScaleConventionsInTheDraft) {
  // Multipliers in the model, reciprocals in the draft: the name says which.
  Layout layout = make_layout("nvidia-nvfp4");
  convert(
      layout.checkpoint,
      [](const auto& s) { return is_draft(s) && s.find(".ffn.experts.") != std::string::npos; },
      Format::kNvfp4, Naming::kCompressedTensors);
  const Served served = serve(layout);
  EXPECT_EQ(format_of(*served.runner, "MTP routed experts"), "NVFP4");
  expect_native(served);
}

TEST(FieldFailures, TargetsLinearTakenLiterally) {
  // config_groups.group_0 targets every Linear; the dense half is FP8 all the same.
  const Served served = serve(make_layout("nvidia-nvfp4"));
  EXPECT_EQ(format_of(*served.runner, "attention projections"), "FP8 128x128 (E8M0)");
  EXPECT_EQ(format_of(*served.runner, "shared experts"), "FP8 128x128 (E8M0)");
}

TEST(FieldFailures, MissingScaleFmtOtherSuffixesAndGlobalScaleShapes) {
  Layout layout = make_layout("nvidia-nvfp4");
  layout.checkpoint.set_config("quantization_config",
                               R"({"quant_method":"fp8","activation_scheme":"dynamic"})");
  for (RandomShard& shard : layout.checkpoint.shards)
    for (RandomTensor& t : shard.tensors) {
      if (t.name.ends_with(".weight_scale_2") || t.name.ends_with(".input_scale")) t.shape = {1};
      if (t.name.ends_with("wq_a.scale") || t.name.ends_with("wo_b.scale"))
        t.name.replace(t.name.size() - 6, 6, ".weight_scale_inv");
      if (t.name.ends_with("wkv.scale")) t.name.replace(t.name.size() - 6, 6, ".weight_scale");
    }
  expect_native(serve(layout));
}

TEST(FieldFailures, RegexTargetsOfAnotherSpellingLeaveExpertsInBf16) {
  Layout layout = make_layout("deepseek");
  convert(layout.checkpoint, is_routed_expert, Format::kBF16, Naming::kDeepSeek);
  layout.checkpoint.remove_config("expert_dtype");
  layout.checkpoint.set_config(
      "quantization_config",
      R"({"quant_method":"compressed-tensors","config_groups":{"group_0":{"targets":
          ["re:.*mlp.experts.*"],"weights":{"num_bits":4,"type":"int","group_size":128}}}})");
  const Served served = serve(layout);
  EXPECT_EQ(format_of(*served.runner, "routed experts"), "BF16");
  EXPECT_THAT(served.runner->info().notes, Contains(HasSubstr("config_groups.group_0 is INT4 g128, "
                                                              "but no matrix is")));
  EXPECT_THAT(served.runner->info().notes, Contains(HasSubstr("routed experts are BF16")));
  expect_native(served);
}

TEST(FieldFailures, Int4ScalesOfARankAreNotAGroupSize) {
  // Half the scales for all the columns: not groups of 256, and not served.
  Layout layout = make_layout("canada-w4a16");
  RandomTensor& scale = layout.checkpoint.tensor("layers.0.ffn.experts.0.w1.weight_scale");
  scale.shape = {scale.shape[0] / 2, scale.shape[1]};
  scale.bytes.resize(scale.bytes.size() / 2);
  const ScratchFolder folder;
  write_layout(folder.path(), layout);
  try {
    load(folder.path());
    FAIL() << "accepted";
  } catch (const CheckpointError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("experts.0.w1.weight_scale'"),
                                    HasSubstr("[128, 1] as the scale of INT4 in groups of 128"),
                                    HasSubstr("found BF16 [64, 1] (1/2 of the rows")));
  }
}

TEST(FieldFailures, Bf16DraftInheritsTheTargetsConfig) {
  const Served served = serve(make_layout("canada-w4a16-mtp"));
  EXPECT_TRUE(served.runner->info().drafting);
  for (const char* kind :
       {"MTP routed experts", "MTP attention projections", "MTP projections", "MTP shared experts"})
    EXPECT_EQ(format_of(*served.runner, kind), "BF16");
  EXPECT_THAT(
      served.runner->info().notes,
      Contains(HasSubstr("mtp.0.emb.tok_emb.*: 1 tensors not used: the same bytes as embed")));
}

TEST(FieldFailures, ADraftWithAnEmbeddingOfItsOwnKeepsIt) {
  Layout layout = make_layout("canada-w4a16-mtp");
  const Served shared = serve(layout);
  RandomTensor& own = layout.checkpoint.tensor("mtp.0.emb.tok_emb.weight");
  for (std::size_t i = 1; i < own.bytes.size(); i += 2) own.bytes[i] ^= 0x80;  // every sign
  const Served served = serve(layout);
  EXPECT_EQ(format_of(*served.runner, "MTP embedding"), "BF16");
  EXPECT_EQ(worst_difference(served.trace.logits, shared.trace.logits), 0.0);
  EXPECT_GT(worst_difference(served.trace.mtp1_logits, shared.trace.mtp1_logits), 0.1);
}

TEST(FieldFailures, AnExportThatDroppedTheDraft) {
  const Served served = serve(make_layout("redhat-nvfp4"));
  EXPECT_FALSE(served.runner->info().drafting);
  EXPECT_THAT(served.runner->info().notes, Contains(HasSubstr("no drafting")));
  EXPECT_LT(worst_difference(served.trace.logits, native().trace.logits), 2e-4);
}

TEST(FieldFailures, DsparkIsNotAnMtpHead) {
  Layout layout = make_layout("deepseek-dspark");
  const ScratchFolder folder;
  write_layout(folder.path(), layout);
  const auto runner = load(folder.path());
  EXPECT_TRUE(runner->info().drafting);
  EXPECT_FALSE(runner->model().has_mtp());
  // Where config.json does not say how to run it, it is left out.
  layout.checkpoint.remove_config("dspark_target_layer_ids");
  const Served served = serve(layout);
  EXPECT_FALSE(served.runner->info().drafting);
  EXPECT_THAT(served.runner->info().notes, Contains(HasSubstr("DSpark")));
}

TEST(FieldFailures, ExponentSpansAreSaidAtLoad) {
  EXPECT_THAT(native().runner->info().notes,
              Contains(AllOf(HasSubstr("MXFP4: scales of"), HasSubstr("widest span"))));
  EXPECT_THAT(serve(make_layout("transcode")).runner->info().notes,
              Contains(AllOf(HasSubstr("NVFP4: scales of"), HasSubstr("powers of two"))));
}

// Everything that is wrong is said at once.
TEST(Inspect, NamesEveryProblemOfADamagedCheckpoint) {
  Layout layout = make_layout("nvidia-nvfp4");
  RandomCheckpoint& c = layout.checkpoint;
  c.tensor("layers.0.ffn.experts.0.w1.weight_scale").bytes[7] = 0x7F;
  c.tensor("layers.1.ffn.experts.2.w2.weight_scale").bytes[0] = 0x81;
  c.tensor("layers.1.attn.wq_a.scale").bytes[0] = 0xFF;
  c.remove_tensor("layers.2.ffn.experts.1.w3.weight_scale_2");
  c.remove_tensor("layers.0.attn_norm.weight");
  c.tensor("layers.0.attn.wkv.weight").shape = {128, 512};
  c.shards[0].tensors.push_back({"stray.weight", "F32", {1}, std::vector<std::uint8_t>(4)});
  const ScratchFolder folder;
  write_layout(folder.path(), layout);
  const auto headers = inspect_folder(folder.path(), false);
  EXPECT_EQ(headers.problems.size(), 3u) << ::testing::PrintToString(headers.problems);
  const auto scanned = inspect_folder(folder.path(), true);
  EXPECT_EQ(scanned.verdict, checkpoint::Verdict::kRefuse);
  EXPECT_THAT(scanned.problems, Contains(HasSubstr("layers.0.attn.wkv.weight'")));
  EXPECT_THAT(scanned.problems, Contains(AllOf(HasSubstr("2 expected tensors are missing"),
                                               HasSubstr("experts.1.w3.weight_scale_2'"),
                                               HasSubstr("'layers.0.attn_norm.weight'"))));
  EXPECT_THAT(scanned.problems, Contains(HasSubstr("'stray.weight'")));
  EXPECT_THAT(scanned.problems, Contains(AllOf(HasSubstr("experts.0.w1.weight_scale'"),
                                               HasSubstr("E4M3 NaN"), HasSubstr("element 7"))));
  EXPECT_THAT(scanned.problems,
              Contains(AllOf(HasSubstr("experts.2.w2.weight_scale'"), HasSubstr("negative"))));
  EXPECT_THAT(scanned.problems,
              Contains(AllOf(HasSubstr("layers.1.attn.wq_a.scale'"), HasSubstr("E8M0 NaN"))));
  for (const inspect::FormatRow& row : scanned.rows)
    if (row.layer_kind == "routed experts") {
      EXPECT_EQ(row.scales->nan, 1);
      EXPECT_EQ(row.scales->negative, 1);
    }
  for (const inspect::FormatRow& row : headers.rows) EXPECT_FALSE(row.scales.has_value());
}

TEST(Inspect, AScanComparesTheGlobalScalesOfGateAndUp) {
  for (const bool reciprocal : {false, true}) {
    Layout layout = make_layout(reciprocal ? "redhat-nvfp4" : "nvidia-nvfp4");
    RandomTensor& global =
        layout.checkpoint.tensor(std::string("layers.1.ffn.experts.4.w3.weight_") +
                                 (reciprocal ? "global_scale" : "scale_2"));
    global.bytes[2] ^= 0x80;  // a factor of two
    const ScratchFolder folder;
    write_layout(folder.path(), layout);
    EXPECT_EQ(inspect_folder(folder.path(), false).verdict, checkpoint::Verdict::kServe);
    const auto report = inspect_folder(folder.path(), true);
    if (reciprocal) {
      EXPECT_THAT(report.notes, Contains(HasSubstr("1 pairs of gate and up")));
      EXPECT_NO_THROW(load(folder.path()));
      continue;
    }
    EXPECT_THAT(report.problems,
                ::testing::ElementsAre(AllOf(HasSubstr("layers.1.ffn.experts.4.w3.weight_scale_2'"),
                                             HasSubstr("which the two projections share"))));
    EXPECT_THROW(load(folder.path()), CheckpointError);
  }
}

TEST(Inspect, SaysWhatIsWrongWithAFolderThatHasNothing) {
  const ScratchFolder folder;
  const auto report = inspect_folder(folder.path());
  EXPECT_EQ(report.verdict, checkpoint::Verdict::kRefuse);
  EXPECT_THAT(report.problems, ::testing::ElementsAre(HasSubstr("*.safetensors")));
}

}  // namespace
}  // namespace nibble::testing
