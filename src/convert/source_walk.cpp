#include "convert/source_walk.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "checkpoint/known_layouts.h"
#include "checkpoint/weight_binder.h"
#include "model/deepseek_v4/weight_walk.h"
#include "nibble/status.h"

namespace nibble::convert {
namespace {

using checkpoint::TensorSource;
using checkpoint::WeightBinder;
using checkpoint::WeightParts;
using tensor::DType;

// Headers only, as the loader asks.
class SourceVisitor : public model::WeightVisitor {
 public:
  explicit SourceVisitor(WeightBinder& binder) : binder_(binder) {}

  ops::Matrix matrix(const std::string& kind, ops::OpKind, const std::string& name,
                     std::int64_t rows, std::int64_t cols) override {
    matrices.push_back({kind, binder_.locate_matrix(name, rows, cols)});
    return {};
  }
  std::pair<ops::Matrix, ops::Matrix> gate_and_up(const std::string& kind, ops::OpKind op,
                                                  const std::string& gate, const std::string& up,
                                                  std::int64_t rows, std::int64_t cols) override {
    matrix(kind, op, gate, rows, cols);
    matrix(kind, op, up, rows, cols);
    const int second = static_cast<int>(matrices.size()) - 1;
    matrices[static_cast<std::size_t>(second)].partner = second - 1;
    matrices[static_cast<std::size_t>(second - 1)].partner = second;
    return {};
  }
  tensor::View vector(const std::string& name, const tensor::Shape& shape) override {
    binder_.locate(name, shape);
    used[name] = std::nullopt;
    return {};
  }
  tensor::View table(const std::string& name, const tensor::Shape& shape,
                     std::int64_t highest) override {
    binder_.locate(name, shape, true);
    used[name] = highest;
    return {};
  }

  std::vector<PlannedMatrix> matrices;
  std::map<std::string, std::optional<std::int64_t>> used;  // vectors and tables

 private:
  WeightBinder& binder_;
};

const std::vector<TensorSource WeightParts::*>& all_parts() {
  static const std::vector<TensorSource WeightParts::*> parts = {
      &WeightParts::weight,     &WeightParts::scale,      &WeightParts::global_scale,
      &WeightParts::shape,      &WeightParts::zero_point, &WeightParts::group_index,
      &WeightParts::input_scale};
  return parts;
}

// [rows, cols] of a quantised weight that no configuration describes, from the weight and its scales
// together; nothing for one that is not quantised.
std::optional<std::pair<std::int64_t, std::int64_t>> size_of(const TensorSource& weight) {
  if (weight.shape.rank() != 2) return std::nullopt;
  const std::int64_t rows = weight.shape[0], width = weight.shape[1];
  switch (weight.stored->dtype) {
    case DType::kF8E4M3:
      return std::pair(rows, width);
    case DType::kI8:
    case DType::kU8:
      return std::pair(rows, width * 2);  // detect_format holds it against the scales
    case DType::kI32:
      return std::pair(rows, width * 8);
    default:
      return std::nullopt;
  }
}

// The quantised matrices among the tensors that the model does not use.
std::vector<PlannedMatrix> unused_matrices(const checkpoint::Checkpoint& checkpoint,
                                           const std::map<std::string, TensorSource>& all,
                                           const std::set<std::string>& taken) {
  constexpr std::string_view kWeight = ".weight";
  std::vector<PlannedMatrix> matrices;
  for (const auto& [name, weight] : all) {
    if (!name.starts_with("mtp.") || !name.ends_with(kWeight) || taken.contains(name)) continue;
    const auto size = size_of(weight);
    if (!size) continue;
    PlannedMatrix matrix;
    matrix.kind = kUnusedDraftKind;
    matrix.source.name = name.substr(0, name.size() - kWeight.size());
    matrix.source.rows = size->first;
    matrix.source.cols = size->second;
    const auto part = [&](const char* suffix) {
      const auto found = all.find(matrix.source.name + suffix);
      return found == all.end() ? TensorSource{} : found->second;
    };
    matrix.source.parts = {weight,
                           part(".scale"),
                           part(".global_scale"),
                           part(".input_scale"),
                           part(".weight_shape"),
                           part(".weight_zero_point"),
                           part(".weight_g_idx")};
    matrix.source.format =
        checkpoint::detect_format(checkpoint, matrix.source.parts, size->first, size->second);
    if (!matrix.source.format.missing.empty())
      throw CheckpointError(fmt::format("{}: expected {}{} {} beside it, found none",
                                        where(checkpoint, weight), matrix.source.name,
                                        matrix.source.format.missing,
                                        matrix.source.format.missing_shape.to_string()));
    matrices.push_back(std::move(matrix));
  }
  return matrices;
}

}  // namespace

std::map<std::string, TensorSource> canonical_tensors(const checkpoint::Checkpoint& checkpoint) {
  std::map<std::string, TensorSource> all;
  for (const checkpoint::CheckpointTensor& stored : checkpoint.tensors())
    for (TensorSource& source : canonical_sources(stored, checkpoint.where(stored))) {
      std::string name = source.name;
      all.emplace(std::move(name), std::move(source));
    }
  return all;
}

SourceTensors walk_source(const checkpoint::Checkpoint& checkpoint,
                          const model::ModelConfig& config) {
  const checkpoint::Folder& folder = checkpoint.folder();
  const checkpoint::QuantClaims claims = checkpoint::read_quant_claims(folder);
  if (const auto reason = checkpoint::inspect_only_reason(claims.quant_method))
    throw CheckpointError(fmt::format("{}: {}; `nibble inspect` shows what it holds",
                                      folder.path_of("config.json"), *reason));
  WeightBinder binder(checkpoint);
  SourceVisitor visitor(binder);
  const model::ModelWeights weights = walk_weights(binder, config, visitor);
  binder.finish();

  SourceTensors out;
  out.matrices = std::move(visitor.matrices);
  const std::map<std::string, TensorSource> all = canonical_tensors(checkpoint);
  std::set<std::string> taken;
  const auto take_parts = [&](const PlannedMatrix& matrix) {
    for (const auto part : all_parts())
      if ((matrix.source.parts.*part).stored != nullptr)
        taken.insert((matrix.source.parts.*part).name);
  };
  for (const PlannedMatrix& matrix : out.matrices) take_parts(matrix);
  for (PlannedMatrix& matrix : unused_matrices(checkpoint, all, taken)) {
    take_parts(matrix);
    out.matrices.push_back(std::move(matrix));
  }
  for (const auto& [name, source] : all) {
    if (taken.contains(name)) continue;
    const auto used = visitor.used.find(name);
    if (used == visitor.used.end())
      out.loose.push_back({source, false, std::nullopt});
    else
      out.loose.push_back({source, true, used->second});
  }
  out.notes = weights.notes;
  for (const auto* lines : {&checkpoint.notes(), &binder.notes()})
    out.notes.insert(out.notes.end(), lines->begin(), lines->end());
  return out;
}

}  // namespace nibble::convert
