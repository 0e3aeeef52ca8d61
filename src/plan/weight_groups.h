// A checkpoint's tensors as a plan sees them: groups that are stored, split and read alike.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ops/registry.h"
#include "plan/model_facts.h"
#include "plan/weight_format.h"

namespace nibble::plan {

// How tensor parallelism cuts a tensor (docs/plan.md, "What each GPU holds"; deepseek-v4.md 3.10).
enum class Split {
  kWhole,       // every GPU holds all of it
  kGroups,      // by output group, and the heads that belong to it
  kIndexHeads,  // by indexer head
  kInner,       // experts: along their inner width
  kVocab,       // by vocabulary row
};

// What a step reads of it.
enum class Read {
  kAll,      // once a step
  kRow,      // one row a token
  kExperts,  // the experts that the step's tokens are routed to
};

struct WeightGroup {
  std::string
      kind;  // as in the start-up table: "attention projections"; drafters: "MTP ..." or "DSpark ..."
  std::string part;  // which of the kind's weights: "attn.wq_b"
  std::string format;
  std::optional<quant::Format> quant_format;
  Arithmetic arithmetic = Arithmetic::kBf16;
  ops::OpKind op = ops::OpKind::kLinear;
  bool vectors = false;  // norms, biases, tables
  bool draft = false;
  Split split = Split::kWhole;
  Read read = Read::kAll;
  std::int64_t count = 0;  // matrices; tensors when `vectors`
  std::int64_t bytes = 0;
  double row_bytes = 0.0;  // kRow: of one row of each of its tensors together
  double flops = 0.0;      // of one token through all of it; kRow: 0
};

enum class Drafter { kNone, kMtp, kDspark };

struct WeightGroups {
  std::vector<WeightGroup> groups;  // in the order of the table in weight_groups.cpp
  Drafter drafter = Drafter::kNone;
  int draft_stages = 0;
  std::vector<std::string> notes;  // tensors that are none of this model's, if any
};

// Every tensor lands in exactly one group: the bytes add up to the checkpoint's.
WeightGroups group_weights(const ModelFacts& facts);

inline constexpr const char* kVectorsKind = "norms, biases and tables";

}  // namespace nibble::plan
