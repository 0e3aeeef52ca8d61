// Every published layout that is served, converted to every format: the result loads with the very
// values that the report promises, whatever the source spelled them like.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <set>

#include "checkpoint/known_layouts.h"
#include "checkpoint/weight_binder.h"
#include "convert/convert.h"
#include "convert/source_walk.h"
#include "formats/layouts.h"
#include "inspect/inspect.h"
#include "model/config.h"
#include "nibble/status.h"

namespace nibble::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::IsEmpty;

class Folders {
 public:
  Folders() : root_(::testing::TempDir() + "nibble_convert_" + std::to_string(getpid())) {
    fs::create_directories(root_);
  }
  ~Folders() { fs::remove_all(root_); }
  Folders(const Folders&) = delete;
  Folders& operator=(const Folders&) = delete;
  std::string operator/(std::string_view name) const { return (root_ / name).string(); }

 private:
  fs::path root_;
};

// Every matrix of the model as the loader reads it, and every [N, K] of a drafter that it does not use.
std::map<std::string, quant::HostMatrix> matrices_of(const std::string& folder) {
  const auto checkpoint = checkpoint::Checkpoint::open(folder);
  const auto config = model::ModelConfig::load(checkpoint.folder());
  const checkpoint::WeightBinder reader(checkpoint);
  std::map<std::string, quant::HostMatrix> matrices;
  for (const convert::PlannedMatrix& m : convert::walk_source(checkpoint, config).matrices)
    matrices[m.source.name] = reader.read(m.source);
  for (const auto& [name, tensor] : convert::canonical_tensors(checkpoint)) {
    const std::string stem = name.substr(0, name.rfind('.'));
    if (!name.starts_with("mtp.") || !name.ends_with(".weight") || tensor.shape.rank() != 2 ||
        tensor.stored->dtype != tensor::DType::kBF16 || matrices.contains(stem))
      continue;
    quant::HostMatrix m =
        quant::make_host_matrix(quant::Format::kBF16, tensor.shape[0], tensor.shape[1]);
    checkpoint.read(*tensor.stored, 0, m.data.span());
    matrices[stem] = std::move(m);
  }
  return matrices;
}

class EveryLayout : public ::testing::TestWithParam<checkpoint::KnownLayout> {};

TEST_P(EveryLayout, ConvertsToEveryFormat) {
  const Folders folders;
  fs::create_directories(folders / "source");
  write_layout(folders / "source", make_layout(GetParam().id));
  const auto before = matrices_of(folders / "source");
  for (const convert::Target target : convert::kTargets) {
    SCOPED_TRACE(convert::target_name(target));
    convert::ConvertOptions options;
    options.source = folders / "source";
    options.destination = folders / convert::target_name(target);
    options.target = target;
    options.threads = 2;
    options.durable = false;
    const convert::ConvertReport report = convert::convert(options);
    const auto after = matrices_of(options.destination);
    ASSERT_EQ(after.size(), before.size());
    std::set<std::string> told;
    for (const convert::MatrixReport& m : report.matrices) {
      told.insert(m.name);
      const quant::HostMatrix& made = after.at(m.name);
      EXPECT_EQ(made.format, convert::target_format(target)) << m.name;
      const convert::MatrixError error = convert::compare(before.at(m.name), made);
      EXPECT_EQ(error.inexact_values, m.error.inexact_values) << m.name;
      EXPECT_EQ(error.inexact_blocks, m.error.inexact_blocks) << m.name;
      EXPECT_EQ(error.relative_rms(), m.error.relative_rms()) << m.name;
      EXPECT_LT(error.relative_rms(), target == convert::Target::kInt4 ? 0.3 : 0.2) << m.name;
    }
    for (const auto& [name, matrix] : before) {
      const bool expert = is_routed_expert(name);
      const bool changes =
          target == convert::Target::kBf16 ? matrix.format != quant::Format::kBF16 : expert;
      EXPECT_EQ(told.contains(name), changes) << name;
      EXPECT_TRUE(changes || convert::compare(matrix, after.at(name)).exact()) << name;
    }
    // Metadata and tensors agree, and the loader has nothing to object to.
    const inspect::Report seen =
        inspect::inspect(checkpoint::Folder(options.destination), inspect::Options{});
    EXPECT_EQ(checkpoint::verdict_name(seen.verdict), "serve") << seen.reason;
    EXPECT_THAT(seen.problems, IsEmpty());
    EXPECT_THAT(seen.contradictions, IsEmpty());
  }
}

std::vector<checkpoint::KnownLayout> served() {
  std::vector<checkpoint::KnownLayout> rows;
  for (const checkpoint::KnownLayout& row : checkpoint::known_layouts())
    if (row.verdict == checkpoint::Verdict::kServe) rows.push_back(row);
  return rows;
}

INSTANTIATE_TEST_SUITE_P(Published, EveryLayout, ::testing::ValuesIn(served()),
                         [](const auto& row) {
                           std::string name(row.param.id);
                           std::ranges::replace_if(
                               name, [](char c) { return std::isalnum(c) == 0; }, '_');
                           return name;
                         });

TEST(OtherLayouts, AreRefusedLeavingNothing) {
  for (const checkpoint::KnownLayout& row : checkpoint::known_layouts()) {
    if (row.verdict == checkpoint::Verdict::kServe) continue;
    SCOPED_TRACE(row.id);
    const Folders folders;
    fs::create_directories(folders / "source");
    write_layout(folders / "source", make_layout(row.id));
    convert::ConvertOptions options;
    options.source = folders / "source";
    options.destination = folders / "out";
    EXPECT_THROW(convert::convert(options), CheckpointError);
    EXPECT_FALSE(fs::exists(folders / "out"));
    EXPECT_FALSE(fs::exists(folders / "out.partial"));
  }
}

}  // namespace
}  // namespace nibble::testing
