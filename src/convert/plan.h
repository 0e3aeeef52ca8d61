// What a conversion will do, decided from headers alone: every tensor of every new shard, what fills
// it, and so how many bytes the result has.
//
// Names in the result are DeepSeek's own, whatever spelling the source had; a tensor is in the shard
// its weight came from. Converted: the routed experts of the target; with bf16 every matrix, the
// draft's too. Their tensors have the target's layout. Kept: all else. Of kept FP8 matrices of
// attention and shared experts the scale is named as the layout names it (`.scale`, compressed-tensors
// `.weight_scale`) and, for fp8, widened to F32, exactly; everything of the draft keeps name and bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/quant_claims.h"
#include "checkpoint/weight_binder.h"
#include "convert/target.h"
#include "model/config.h"

namespace nibble::convert {

struct PlannedMatrix {
  std::string kind;  // of the start-up table: "routed experts"
  checkpoint::MatrixSource source;
  int partner = -1;  // gate and up projection name each other, by place in Plan::matrices
  bool converted = false;

  bool plain() const {  // no scales: its values stand in the file
    return quant::traits(source.format.format).block_cols == 0;
  }
};

// A tensor of a new shard.
struct Slot {
  std::size_t shard = 0;   // place in Plan::shards
  std::size_t tensor = 0;  // place in PlannedShard::tensors
};

// A stored tensor's bytes as they are.
struct TensorJob {
  checkpoint::TensorSource source;
  Slot slot;
  bool check = false;                   // refuse infinities and NaNs
  std::optional<std::int64_t> highest;  // refuse integers outside [0, highest]
};

// Matrices that are encoded together.
struct MatrixJob {
  struct Output {
    Part part;
    Slot slot;
  };
  struct Member {
    int matrix = 0;               // place in Plan::matrices
    std::vector<Output> outputs;  // none: it only shares its scale, and lies in another shard
  };
  std::vector<Member> members;  // one, or the gate and the up projection
};

// Either of both; jobs of one shard write to that shard only.
struct Job {
  std::optional<TensorJob> tensor;
  std::optional<MatrixJob> matrix;
  std::int64_t bytes = 0;  // read, for the progress
};

struct PlannedShard {
  std::string name;
  std::vector<NewTensor> tensors;  // in the order of the file
  std::vector<Job> jobs;           // in the order of the source
};

struct Plan {
  Target target = Target::kNvfp4;
  std::vector<PlannedMatrix> matrices;  // in the order of the model's layers
  std::vector<PlannedShard> shards;     // in the source's order, those without a tensor left out
  std::vector<checkpoint::FoundFormat> found;  // of the source
  std::vector<std::string> notes;
  std::int64_t tensor_bytes = 0;  // the index's total_size
  std::int64_t file_bytes = 0;    // of all shards with their headers
  std::int64_t read_bytes = 0;
  std::int64_t job_bytes = 0;  // memory that the largest job takes: source, result and a slice
};

// Throws CheckpointError for whatever the loader would refuse, and for a matrix whose columns do not
// divide into the target's groups.
Plan make_plan(const checkpoint::Checkpoint& checkpoint, const model::ModelConfig& config,
               Target target);

}  // namespace nibble::convert
