// What a plan knows about machines: one row of constants a kind, each with its source (machines.cpp).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "ops/registry.h"

namespace nibble::plan {

// Between two GPUs of one machine (dgx-spark: of two machines), one direction.
struct Link {
  std::string_view name;     // "NVLink 4"
  double bytes_per_s = 0.0;  // what an all-reduce gets out of it
  double latency_s = 0.0;    // added to a chain of kernels by a small all-reduce
};

struct Machine {
  std::string_view kind;  // as typed: "rtx-pro-6000"
  ops::Arch arch = ops::Arch::kRef;
  std::int64_t capacity_bytes = 0;  // of one GPU, as programs see it
  double usable = 0.0;              // share of it that can hold weights and caches
  double bandwidth = 0.0;           // bytes/s, nominal: the floor
  double read_share = 0.0;          // of it, measured when reading
  // Dense FLOP/s, nominal, fp32 accumulation; 0: no such instruction.
  double bf16 = 0.0;
  double fp8 = 0.0;
  double fp4 = 0.0;
  double tensor_share = 0.0;  // of those, measured in large products
  Link link;
  double launch_s = 0.0;    // from one dependent kernel's end to the next one's full speed
  std::string_view source;  // one line for --explain
};

// Nothing for a kind that is not in the table. "cpu" is the machine this runs on.
std::optional<Machine> find_machine(std::string_view kind);

std::string machine_kinds();  // "h200, h100, ..."

struct GpuRequest {
  Machine machine;
  int count = 1;
};

inline constexpr int kMaxGpus = 8;  // of one machine

// "KIND" or "KIND:N". Throws Error(kUsage) that lists the kinds, or says which N are allowed.
GpuRequest parse_gpu(const std::string& text);

}  // namespace nibble::plan
