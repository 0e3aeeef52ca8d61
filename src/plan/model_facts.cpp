#include "plan/model_facts.h"

#include <fmt/format.h>

#include "checkpoint/tensor_names.h"

namespace nibble::plan {

std::int64_t ModelFacts::tensor_bytes() const {
  std::int64_t total = 0;
  for (const TensorFact& tensor : tensors) total += tensor.bytes;
  return total;
}

ModelFacts make_facts(std::string name, std::string_view config_text,
                      const std::string& config_path, std::vector<TensorFact> tensors) {
  ModelFacts facts;
  facts.name = std::move(name);
  facts.config = model::ModelConfig::parse(config_text, config_path);
  facts.tensors = std::move(tensors);
  return facts;
}

ModelFacts facts_of(std::string name, const checkpoint::Checkpoint& checkpoint) {
  ModelFacts facts;
  facts.name = std::move(name);
  facts.source = fmt::format("the shard headers in {}", checkpoint.folder().path());
  facts.config = model::ModelConfig::load(checkpoint.folder());
  facts.tensors.reserve(checkpoint.tensors().size());
  for (const checkpoint::CheckpointTensor& stored : checkpoint.tensors())
    for (checkpoint::TensorSource& source :
         checkpoint::canonical_sources(stored, checkpoint.where(stored)))
      facts.tensors.push_back({std::move(source.name), stored.dtype, source.shape, source.bytes});
  facts.notes = checkpoint.notes();
  return facts;
}

}  // namespace nibble::plan
