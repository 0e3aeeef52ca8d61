#include "ops/registry.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "ops/op_name.h"

namespace nibble::ops {
namespace {

using quant::Format;

constexpr OpKind kOps[] = {
    OpKind::kEmbed,           OpKind::kNorm,      OpKind::kLinear,  OpKind::kGroupedLinear,
    OpKind::kHyperConnection, OpKind::kAttention, OpKind::kIndexer, OpKind::kCompressor,
    OpKind::kRouter,          OpKind::kExperts};

KernelRow row(Arch arch, std::string_view name) {
  KernelRow r;
  r.op = OpKind::kExperts;
  r.arch = arch;
  r.name = name;
  r.unit = Unit::kTensorCore;
  return r;
}

TEST(Registry, HostBackendsHaveAKernelForEveryOpOnEveryFormat) {
  const struct {
    Arch arch;
    const char* prefix;
    const char* suffix;
    Unit unit;
  } backends[] = {{Arch::kRef, "ref.", "", Unit::kScalar},
                  {Arch::kCpuPortable, "cpu.", ".portable", Unit::kScalar},
                  {Arch::kCpuAvx2, "cpu.", ".avx2", Unit::kVector}};
  for (const auto& backend : backends)
    for (const OpKind op : kOps)
      for (const Format format : quant::kFormats) {
        const KernelRow* found = find_kernel({op, format, backend.arch});
        ASSERT_NE(found, nullptr) << op_name(op) << " on " << arch_name(backend.arch);
        EXPECT_EQ(found->name, std::string(backend.prefix) + op_name(op) + backend.suffix);
        EXPECT_EQ(found->unit, backend.unit);
      }
}

TEST(Registry, ArchitecturesWithoutKernelsSayNone) {
  for (const Arch arch : {Arch::kSm80, Arch::kSm89, Arch::kSm90a, Arch::kSm100a, Arch::kSm120f})
    for (const OpKind op : kOps) EXPECT_EQ(find_kernel({op, Format::kMxfp4, arch}), nullptr);
}

TEST(Registry, AFormatThatNoBuildHoldsHasNoKernelButAnOpWithoutWeightsHas) {
  EXPECT_EQ(find_kernel({OpKind::kExperts, std::nullopt, Arch::kCpuAvx2}), nullptr);
  EXPECT_NE(find_kernel({OpKind::kAttention, std::nullopt, Arch::kCpuAvx2}), nullptr);
}

TEST(Registry, FormatPhaseRowsAndColumnsChooseAmongRowsInTheirOrder) {
  std::vector<KernelRow> table;
  KernelRow decode = row(Arch::kSm90a, "decode");
  decode.format = Format::kMxfp4;
  decode.phase = Phase::kDecode;
  decode.max_rows = 64;
  decode.cols_multiple = 256;
  table.push_back(decode);
  KernelRow prefill = row(Arch::kSm90a, "many rows");
  prefill.format = Format::kMxfp4;
  prefill.min_rows = 65;
  table.push_back(prefill);
  table.push_back(row(Arch::kSm90a, "any format"));

  const auto name = [&](KernelQuery query) {
    query.op = OpKind::kExperts;
    query.arch = Arch::kSm90a;
    const KernelRow* found = find_kernel(query, table);
    return found ? std::string(found->name) : "none";
  };
  EXPECT_EQ(name({.format = Format::kMxfp4, .rows = 64, .cols = 4096}), "decode");
  EXPECT_EQ(name({.format = Format::kMxfp4, .rows = 65, .cols = 4096}), "many rows");
  EXPECT_EQ(name({.format = Format::kMxfp4, .rows = 64, .cols = 4096 + 32}), "any format");
  EXPECT_EQ(name({.format = Format::kMxfp4, .phase = Phase::kPrefill, .rows = 64}), "any format");
  EXPECT_EQ(name({.format = Format::kFp8Block128}), "any format");
  EXPECT_EQ(name({.format = std::nullopt}), "none");
}

TEST(Registry, NoRowIsHiddenByATwinOfIt) {
  std::set<std::tuple<int, int, int, int, std::int64_t, std::int64_t, std::int64_t>> seen;
  for (const KernelRow& r : kernel_table()) {
    EXPECT_FALSE(r.name.empty());
    EXPECT_LE(r.min_rows, r.max_rows) << r.name;
    EXPECT_NE(r.cost, nullptr) << r.name;
    EXPECT_TRUE(seen.insert({static_cast<int>(r.op), static_cast<int>(r.arch),
                             r.format ? static_cast<int>(*r.format) : -1,
                             r.phase ? static_cast<int>(*r.phase) : -1, r.min_rows, r.max_rows,
                             r.cols_multiple})
                    .second)
        << r.name;
  }
}

TEST(Registry, TheRooflineIsTheSlowerOfMemoryAndArithmeticAfterTheLaunches) {
  const KernelRates rates{.bytes_per_s = 1e12, .flops_per_s = 1e14, .launch_s = 2e-6};
  EXPECT_DOUBLE_EQ(roofline_s({.bytes = 1e9, .flops = 1e9, .launches = 3}, rates), 6e-6 + 1e-3);
  EXPECT_DOUBLE_EQ(roofline_s({.bytes = 1e9, .flops = 1e12, .launches = 0}, rates), 1e-2);
}

}  // namespace
}  // namespace nibble::ops
