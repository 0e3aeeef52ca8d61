// The tensors of a source checkpoint as a conversion sees them: matrices with their kinds, everything
// else one by one.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "convert/plan.h"
#include "model/config.h"

namespace nibble::convert {

// What stands in the files beside the parts of matrices.
struct LooseTensor {
  checkpoint::TensorSource source;
  bool used = false;                    // the model reads it (else known, and not used)
  std::optional<std::int64_t> highest;  // a table of integers from 0 to this
};

struct SourceTensors {
  std::vector<PlannedMatrix> matrices;  // `converted` not decided
  std::vector<LooseTensor> loose;       // sorted by name
  std::vector<std::string> notes;
};

// Asks for every weight as the loader does; throws what it would throw from headers alone. Quantised
// matrices that the model does not use (a DSpark drafter's) are matrices too, of kind "draft, unused".
SourceTensors walk_source(const checkpoint::Checkpoint& checkpoint,
                          const model::ModelConfig& config);

inline constexpr const char* kUnusedDraftKind = "draft, unused";

// All canonical tensors of the files by name.
std::map<std::string, checkpoint::TensorSource> canonical_tensors(
    const checkpoint::Checkpoint& checkpoint);

}  // namespace nibble::convert
