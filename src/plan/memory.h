// Memory of one GPU, component by component.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/cache_bytes.h"
#include "plan/machines.h"
#include "plan/weight_groups.h"

namespace nibble::plan {

struct PlanOptions {
  GpuRequest gpu;
  std::int64_t context = 4096;  // tokens of each sequence, prompt and answer
  int concurrency = 1;          // sequences at once
  KvDtype kv_dtype = KvDtype::kAuto;
  bool draft = true;
};

// A line of --explain: what, how it came about, and the number.
struct ExplainLine {
  std::string what;
  std::string how;
  std::string value;
};

struct MemoryPlan {
  std::int64_t weights = 0;     // this GPU's share of what is split; on one GPU all of the backbone
  std::int64_t replicated = 0;  // what every GPU holds whole; 0 on one GPU
  std::int64_t kv = 0;          // compressed rows and index keys of all sequences; not split
  std::int64_t state = 0;       // windows, open compressor state
  std::int64_t snapshots = 0;   // of prefixes, where the model runs on the host; else they are
  std::int64_t host_snapshots = 0;  // in the host's memory, and not in total()
  std::int64_t workspace = 0;       // activations of the largest step
  std::int64_t graphs = 0;          // captured steps
  std::int64_t draft = 0;           // the drafter's weights and windows
  std::int64_t capacity = 0;        // what one GPU has for all this
  std::vector<ExplainLine> lines;

  std::int64_t total() const {
    return weights + replicated + kv + state + snapshots + workspace + graphs + draft;
  }
  bool fits() const { return total() <= capacity; }
};

// The part of a tensor that the fullest of several GPUs holds, in units that are never cut: output groups, indexer heads,
// blocks of 128 inner channels, vocabulary rows.
struct Share {
  std::int64_t mine = 1;
  std::int64_t all = 1;
  double ratio() const { return static_cast<double>(mine) / static_cast<double>(all); }
  // Rounded up; no product of two large numbers.
  std::int64_t of(std::int64_t bytes) const {
    return bytes / all * mine + (bytes % all * mine + all - 1) / all;
  }
};
Share split_share(Split split, const model::ModelConfig& config, int gpus);

// --kv-dtype auto: fp8 rows on a GPU, and on a host when the config names an activation scheme; else fp32.
KvDtype resolve_kv_dtype(KvDtype dtype, const model::ModelConfig& config, ops::Arch arch);

bool is_host(ops::Arch arch);

// Rows of the largest step: prompt chunk or all sequences with their drafts.
std::int64_t step_rows(const PlanOptions& options);

// Launches of one decode step; the number of nodes of its graph.
std::int64_t step_launches(const model::ModelConfig& config);

inline constexpr int kMostSequences = 65536;  // nobody asks for more at once

// Refuses a config whose numbers cannot be planned with: rows that no cache format holds, or dimensions so large that bytes
// leave 64 bits. Throws CheckpointError naming the key.
void check_plannable(const model::ModelConfig& config, const PlanOptions& options);

// After check_plannable().
MemoryPlan plan_memory(const model::ModelConfig& config, const WeightGroups& weights,
                       const PlanOptions& options);

}  // namespace nibble::plan
