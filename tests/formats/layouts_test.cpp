// Each published layout (quantization.md 2.2) has the verdict that the table in the code and in
// docs/formats.md gives it, and those that are served give the logits of their own weights in F32.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

#include "checkpoint/known_layouts.h"
#include "engine/model_runner.h"
#include "formats/served.h"
#include "golden/model_under_test.h"
#include "inspect/inspect.h"
#include "nibble/status.h"
#include "ops/ref/ref_backend.h"

namespace nibble::testing {
namespace {

using checkpoint::KnownLayout;
using checkpoint::Verdict;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class KnownLayouts : public ::testing::TestWithParam<KnownLayout> {};

TEST_P(KnownLayouts, HasItsVerdict) {
  const KnownLayout& row = GetParam();
  const ScratchFolder folder;
  const std::string path = folder.path();
  const Layout layout = make_layout(row.id);
  write_layout(path, layout);
  const inspect::Report report = inspect_folder(path);
  EXPECT_EQ(checkpoint::verdict_name(report.verdict), checkpoint::verdict_name(row.verdict))
      << ::testing::PrintToString(report.problems) << report.reason;
  if (row.verdict != Verdict::kServe) {
    EXPECT_THROW(load(path), CheckpointError);
    if (row.verdict == Verdict::kRefuse) {
      EXPECT_THAT(report.problems, Not(IsEmpty()));
    } else {
      EXPECT_THAT(report.problems, IsEmpty());
      EXPECT_FALSE(report.reason.empty());
      EXPECT_FALSE(report.rows.empty());
    }
    return;
  }
  EXPECT_THAT(report.problems, IsEmpty());
  const auto runner = load(path);
  // The same weights in F32: every format computes what its values say.
  const ScratchFolder wide;
  write_checkpoint(wide.path(), as_f32(layout.checkpoint));
  const auto reference = load(wide.path());
  const bool drafting = runner->info().drafting;
  EXPECT_EQ(reference->info().drafting, drafting);
  const RunOptions options{.chunk = 16, .drafter = runner->model().has_mtp()};
  const Trace found = run(*runner, prompt(), options),
              expected = run(*reference, prompt(), options);
  EXPECT_LT(worst_difference(found.logits, expected.logits), 2e-4);
  if (options.drafter) {
    EXPECT_LT(worst_difference(found.mtp1_logits, expected.mtp1_logits), 2e-4);
  }
  // The inspector saw what the loader found.
  for (const KernelChoice& choice : runner->info().kernels) {
    const auto same = std::ranges::find_if(report.rows, [&](const inspect::FormatRow& r) {
      return r.layer_kind == choice.layer_kind && r.format == choice.format;
    });
    ASSERT_NE(same, report.rows.end()) << choice.layer_kind << " " << choice.format;
    EXPECT_EQ(same->count, choice.count);
  }
}

INSTANTIATE_TEST_SUITE_P(All, KnownLayouts,
                         ::testing::ValuesIn(checkpoint::known_layouts().begin(),
                                             checkpoint::known_layouts().end()),
                         [](const auto& param) {
                           std::string name(param.param.id);
                           std::ranges::replace_if(
                               name, [](char c) { return c == '-' || c == '.'; }, '_');
                           return name;
                         });

TEST(Layouts, ServedInTheirOwnFormats) {
  struct Row {
    const char* id;
    const char* experts;
    const char* dense;
    const char* draft;  // its experts; "" without
  };
  for (const Row row : {Row{"deepseek", "MXFP4", "FP8 128x128 (E8M0)", "MXFP4"},
                        Row{"deepseek-dspark", "MXFP4", "FP8 128x128 (E8M0)", "MXFP4"},
                        Row{"fp8", "FP8 128x128 (F32)", "FP8 128x128 (F32)", "FP8 128x128 (F32)"},
                        Row{"nvidia-nvfp4", "NVFP4", "FP8 128x128 (E8M0)", "MXFP4"},
                        Row{"redhat-nvfp4", "NVFP4", "FP8 128x128 (BF16)", ""},
                        Row{"canada-w4a16-mtp", "INT4 g128", "FP8 128x128 (F32)", "BF16"},
                        Row{"canada-nvfp4-mtp", "NVFP4", "FP8 128x128 (F32)", "BF16"},
                        Row{"canada-w4a16", "INT4 g128", "FP8 128x128 (F32)", ""},
                        Row{"transcode", "NVFP4", "FP8 128x128 (E8M0)", "NVFP4"}}) {
    const ScratchFolder folder;
    write_layout(folder.path(), make_layout(row.id));
    const auto runner = load(folder.path());
    EXPECT_EQ(format_of(*runner, "routed experts"), row.experts) << row.id;
    EXPECT_EQ(format_of(*runner, "attention projections"), row.dense) << row.id;
    const char* drafter = runner->model().has_dspark() ? "DSpark" : "MTP";
    EXPECT_EQ(format_of(*runner, fmt::format("{} routed experts", drafter)), row.draft) << row.id;
    EXPECT_EQ(runner->info().drafting, std::string(row.draft) != "") << row.id;
  }
}

// Release numerics run on every mix as well: FP8 inputs for some matrices, bf16 for others.
TEST(Layouts, ReleaseNumericsOnMixedFormats) {
  for (const char* id : {"nvidia-nvfp4", "canada-w4a16-mtp"}) {
    const ScratchFolder folder;
    write_layout(folder.path(), make_layout(id));
    const auto runner = load(folder.path(), Activations::kRelease);
    const auto exact = load(folder.path());
    const Trace a = run(*runner, prompt(), {}), b = run(*exact, prompt(), {});
    // Rounding, not another model: formats taken for one another give 0.4 (quantization.md 2.4).
    EXPECT_GT(cosine(a.logits, b.logits), 0.9) << id;
    EXPECT_LT(cosine(a.logits, b.logits), 1.0) << id;
  }
}

// docs/formats.md shows the table of the code, row by row and cell by cell.
TEST(Layouts, TheDocumentShowsTheSameTable) {
  std::ifstream file(std::string(NIBBLE_SOURCE_DIR) + "/docs/formats.md");
  ASSERT_TRUE(file) << "docs/formats.md";
  std::stringstream text;
  text << file.rdbuf();
  std::string expected;
  for (const KnownLayout& row : checkpoint::known_layouts())
    expected +=
        fmt::format("| {} | {} | {} | {} | {} | {} |\n", row.checkpoints, row.experts, row.dense,
                    row.draft, checkpoint::verdict_name(row.verdict), row.remark);
  EXPECT_THAT(text.str(), HasSubstr(expected)) << "the table should read:\n" << expected;
}

}  // namespace
}  // namespace nibble::testing
