// What a plan is made from: a config and the names, types and shapes of tensors, wherever they were learned.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "model/config.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace nibble::plan {

struct TensorFact {
  std::string name;  // canonical (checkpoint/tensor_names.h)
  tensor::DType dtype = tensor::DType::kF32;
  tensor::Shape shape;
  std::int64_t bytes = 0;
};

struct ModelFacts {
  std::string name;  // what the user called it
  std::string
      source;  // "the headers in FOLDER", "the published tensor schedule": how much to trust it
  model::ModelConfig config;
  std::vector<TensorFact> tensors;  // in any order
  std::vector<std::string> notes;
  bool here = false;  // on this machine's disk: nothing to download
  std::optional<std::int64_t>
      download_bytes;  // where files are listed: of those; else the tensors'

  std::int64_t tensor_bytes() const;
};

// The config as text (config_path is what messages call it) and tensors from any source. Throws CheckpointError.
ModelFacts make_facts(std::string name, std::string_view config_text,
                      const std::string& config_path, std::vector<TensorFact> tensors);

// An opened checkpoint, on this machine or behind a checkpoint::FolderBackend; reads config.json and headers only.
// Throws CheckpointError.
ModelFacts facts_of(std::string name, const checkpoint::Checkpoint& checkpoint);

}  // namespace nibble::plan
