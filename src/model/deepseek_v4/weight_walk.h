// Every weight of a DeepSeek-V4 model, one after the other: the walk that loading and inspecting share.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/quant_claims.h"
#include "checkpoint/weight_binder.h"
#include "model/config.h"
#include "model/deepseek_v4/weights.h"
#include "ops/backend.h"

namespace nibble::model {

// What the walk asks for. A loader reads and uploads; an inspector only looks at headers and returns
// empty matrices and views.
class WeightVisitor {
 public:
  virtual ~WeightVisitor() = default;
  // `kind` is the layer kind of the start-up table; `name` is canonical, without suffix.
  virtual ops::Matrix matrix(const std::string& kind, ops::OpKind op, const std::string& name,
                             std::int64_t rows, std::int64_t cols) = 0;
  virtual std::pair<ops::Matrix, ops::Matrix> gate_and_up(const std::string& kind, ops::OpKind op,
                                                          const std::string& gate,
                                                          const std::string& up, std::int64_t rows,
                                                          std::int64_t cols) = 0;
  virtual tensor::View vector(const std::string& name, const tensor::Shape& shape) = 0;
  // Integers from 0 to `highest`.
  virtual tensor::View table(const std::string& name, const tensor::Shape& shape,
                             std::int64_t highest) = 0;
};

// Asks the visitor for each weight once, in the order of the layers; which of them the drafter has
// depends on what the files hold. Does not call binder.finish().
ModelWeights walk_weights(checkpoint::WeightBinder& binder, const ModelConfig& config,
                          WeightVisitor& visitor);

// The class of metadata's claims that a layer kind belongs to.
checkpoint::WeightClass weight_class(std::string_view kind);

// A matrix as the headers show it.
struct MatrixUse {
  std::string kind;
  ops::OpKind op = ops::OpKind::kLinear;
  checkpoint::MatrixSource source;  // source.found() is false for one that is missing or refused
};

// All matrices of the model from headers alone; the binder's ledger is complete afterwards (finish() has
// been called) and, when it collects, holds every problem. `notes` gets the walk's own lines.
std::vector<MatrixUse> list_matrices(checkpoint::WeightBinder& binder, const ModelConfig& config,
                                     std::vector<std::string>& notes);

// The formats of each class among them, for checkpoint::contradictions().
std::vector<checkpoint::FoundFormat> found_formats(const std::vector<MatrixUse>& matrices);

}  // namespace nibble::model
