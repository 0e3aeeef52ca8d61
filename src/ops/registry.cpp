#include "ops/registry.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "ops/op_name.h"

namespace nibble::ops {
namespace {

// Host kernels read every format that quant::Format names: their panels decode on the way into registers.
constexpr KernelRow host(OpKind op, Arch arch, std::string_view name, Unit unit) {
  KernelRow row;
  row.op = op;
  row.arch = arch;
  row.name = name;
  row.unit = unit;
  return row;
}

constexpr KernelRow ref(OpKind op, std::string_view name) {
  return host(op, Arch::kRef, name, Unit::kScalar);
}
constexpr KernelRow portable(OpKind op, std::string_view name) {
  return host(op, Arch::kCpuPortable, name, Unit::kScalar);
}
constexpr KernelRow avx2(OpKind op, std::string_view name) {
  return host(op, Arch::kCpuAvx2, name, Unit::kVector);
}

constexpr auto kTable = std::to_array<KernelRow>({
    ref(OpKind::kEmbed, "ref.embed"),
    ref(OpKind::kNorm, "ref.rms_norm"),
    ref(OpKind::kLinear, "ref.linear"),
    ref(OpKind::kGroupedLinear, "ref.grouped_linear"),
    ref(OpKind::kHyperConnection, "ref.hc_boundary"),
    ref(OpKind::kAttention, "ref.sparse_attention"),
    ref(OpKind::kIndexer, "ref.index_select"),
    ref(OpKind::kCompressor, "ref.compress"),
    ref(OpKind::kRouter, "ref.route"),
    ref(OpKind::kExperts, "ref.routed_experts"),

    portable(OpKind::kEmbed, "cpu.embed.portable"),
    portable(OpKind::kNorm, "cpu.rms_norm.portable"),
    portable(OpKind::kLinear, "cpu.linear.portable"),
    portable(OpKind::kGroupedLinear, "cpu.grouped_linear.portable"),
    portable(OpKind::kHyperConnection, "cpu.hc_boundary.portable"),
    portable(OpKind::kAttention, "cpu.sparse_attention.portable"),
    portable(OpKind::kIndexer, "cpu.index_select.portable"),
    portable(OpKind::kCompressor, "cpu.compress.portable"),
    portable(OpKind::kRouter, "cpu.route.portable"),
    portable(OpKind::kExperts, "cpu.routed_experts.portable"),

    avx2(OpKind::kEmbed, "cpu.embed.avx2"),
    avx2(OpKind::kNorm, "cpu.rms_norm.avx2"),
    avx2(OpKind::kLinear, "cpu.linear.avx2"),
    avx2(OpKind::kGroupedLinear, "cpu.grouped_linear.avx2"),
    avx2(OpKind::kHyperConnection, "cpu.hc_boundary.avx2"),
    avx2(OpKind::kAttention, "cpu.sparse_attention.avx2"),
    avx2(OpKind::kIndexer, "cpu.index_select.avx2"),
    avx2(OpKind::kCompressor, "cpu.compress.avx2"),
    avx2(OpKind::kRouter, "cpu.route.avx2"),
    avx2(OpKind::kExperts, "cpu.routed_experts.avx2"),

    // sm80, sm89, sm90a, sm100a, sm120f: none yet.
});

bool has_weights(OpKind op) {  // a matrix of the checkpoint
  return op != OpKind::kAttention && op != OpKind::kNorm;
}

bool answers(const KernelRow& row, const KernelQuery& query) {
  const bool format_fits =
      row.format ? row.format == query.format : query.format.has_value() || !has_weights(query.op);
  return row.op == query.op && row.arch == query.arch && format_fits &&
         (!row.phase || row.phase == query.phase) && row.min_rows <= query.rows &&
         query.rows <= row.max_rows && query.cols % row.cols_multiple == 0;
}

}  // namespace

const char* arch_name(Arch arch) {
  switch (arch) {
    case Arch::kRef:
      return "ref";
    case Arch::kCpuPortable:
      return "cpu portable";
    case Arch::kCpuAvx2:
      return "cpu AVX2";
    case Arch::kSm80:
      return "sm80";
    case Arch::kSm89:
      return "sm89";
    case Arch::kSm90a:
      return "sm90a";
    case Arch::kSm100a:
      return "sm100a";
    case Arch::kSm120f:
      return "sm120f";
  }
  NIBBLE_CHECK(false, "arch {}", static_cast<int>(arch));
}

const char* unit_name(Unit unit) {
  switch (unit) {
    case Unit::kScalar:
      return "scalar";
    case Unit::kVector:
      return "vector";
    case Unit::kTensorCore:
      return "tensor core";
  }
  NIBBLE_CHECK(false, "unit {}", static_cast<int>(unit));
}

double roofline_s(const KernelWork& work, const KernelRates& rates) {
  return work.launches * rates.launch_s +
         std::max(work.bytes / rates.bytes_per_s, work.flops / rates.flops_per_s);
}

std::span<const KernelRow> kernel_table() {
  return kTable;
}

const KernelRow* find_kernel(const KernelQuery& query, std::span<const KernelRow> table) {
  const auto row =
      std::ranges::find_if(table, [&](const KernelRow& r) { return answers(r, query); });
  return row == table.end() ? nullptr : &*row;
}

KernelInfo kernel_info(const KernelQuery& query) {
  const KernelRow* row = find_kernel(query);
  NIBBLE_CHECK(row != nullptr, "no kernel for {} on {}", op_name(query.op), arch_name(query.arch));
  return {std::string(row->name), unit_name(row->unit)};
}

}  // namespace nibble::ops
