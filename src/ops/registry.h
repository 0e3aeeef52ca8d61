// Which kernel serves what: the one table behind the start-up table, `plan`, and the refusal to run slowly.
//
// A row says: this op, on weights of this format, on this architecture, for steps of this many tokens, is that kernel, on
// that unit, at that cost. A query that no row answers has no kernel yet. To add a kernel, add its rows; the order is the
// preference. Immutable; any thread.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string_view>

#include "ops/backend.h"

namespace nibble::ops {

// What machine code is chosen by. The sm_ names are those the compiler builds for.
enum class Arch { kRef, kCpuPortable, kCpuAvx2, kSm80, kSm89, kSm90a, kSm100a, kSm120f };

enum class Unit { kScalar, kVector, kTensorCore };

// Decode streams weights past few rows, prefill shares a weight among many: other kernels, other bounds.
enum class Phase { kDecode, kPrefill };

const char* arch_name(Arch arch);  // "sm90a"
const char* unit_name(Unit unit);  // "tensor core"

// What one step asks of a kernel, all its launches of that kind together.
struct KernelWork {
  double bytes = 0.0;     // read and written in device memory
  double flops = 0.0;     // two a multiply-add
  double launches = 0.0;  // dependent ones, one after the other
};

// What the machine gives to a kernel of that unit.
struct KernelRates {
  double bytes_per_s = 0.0;
  double flops_per_s = 0.0;
  double launch_s = 0.0;  // between the end of one kernel and the full speed of the next
};

// Seconds. A kernel that has been measured brings its own.
using CostModel = double (*)(const KernelWork& work, const KernelRates& rates);

// launches x launch_s + max(bytes / bytes_per_s, flops / flops_per_s).
double roofline_s(const KernelWork& work, const KernelRates& rates);

inline constexpr std::int64_t kAnyRows = std::numeric_limits<std::int64_t>::max();

struct KernelRow {
  OpKind op = OpKind::kLinear;
  std::optional<quant::Format> format;  // nothing: whatever the backend holds weights in
  Arch arch = Arch::kRef;
  std::optional<Phase> phase;  // nothing: both
  std::int64_t min_rows = 1;   // tokens of a step, both ends included
  std::int64_t max_rows = kAnyRows;
  std::int64_t cols_multiple = 1;  // the weight's columns are a multiple of this
  std::string_view name;           // "cpu.linear.avx2": backend, op, instructions
  Unit unit = Unit::kScalar;
  CostModel cost = roofline_s;
  bool measured =
      false;  // the cost model was fitted to measurements: `plan` then says "basis: kernel"
};

struct KernelQuery {
  OpKind op = OpKind::kLinear;
  // Nothing: the op has no weights, or they are in a format this build cannot hold, which only a row for any format
  // answers when `op` has no weights.
  std::optional<quant::Format> format;
  Arch arch = Arch::kRef;
  Phase phase = Phase::kDecode;
  std::int64_t rows = 1;
  std::int64_t cols = 0;  // 0: not asked
};

std::span<const KernelRow> kernel_table();

// The first row of `table` that answers; null: none yet.
const KernelRow* find_kernel(const KernelQuery& query,
                             std::span<const KernelRow> table = kernel_table());

// As the start-up table prints it. NIBBLE_CHECK failure when there is no row: a backend that runs an op has one for it.
KernelInfo kernel_info(const KernelQuery& query);

}  // namespace nibble::ops
