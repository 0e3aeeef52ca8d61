// `nibble plan`: whether a model fits a machine, and how fast it will be, before anything is downloaded.
//
//   Plan plan = make_plan(facts, options, disk_free_bytes);
//   std::string text = plan_text(plan);
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/memory.h"
#include "plan/speed.h"

namespace nibble::plan {

// A row of the start-up table, for this machine.
struct LayerRow {
  std::string kind;
  std::int64_t count = 0;
  std::string format;
  std::int64_t bytes = 0;  // of the checkpoint; 0 for what has no weights
  std::string kernel;      // "none yet" where the registry has none
  std::string unit;        // "none" then
};

struct Plan {
  std::string model;
  std::string source;  // where the tensors were learned
  PlanOptions options;
  std::string kv_dtype;              // resolved: "fp8"
  std::int64_t download_bytes = 0;   // files to fetch where they are listed, else tensors
  bool here = false;                 // nothing to download
  std::int64_t disk_free_bytes = 0;  // where a download would go
  std::int64_t tensors = 0;
  MemoryPlan memory;
  std::vector<std::string> remedies;  // one line each; empty when it fits and the disk suffices
  std::vector<LayerRow> layers;       // most bytes first
  SpeedPlan speed;
  std::int64_t sequences_that_fit = 0;  // at this context; 0: not even one
  std::vector<std::string> notes;
};

// Throws Error(kUsage) when the context is beyond the model's positions.
Plan make_plan(const ModelFacts& facts, const PlanOptions& options, std::int64_t disk_free_bytes);

// Tables for a person; `explain` adds the arithmetic. Ends with a newline.
std::string plan_text(const Plan& plan, bool explain);

}  // namespace nibble::plan
