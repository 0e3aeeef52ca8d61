#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "checkpoint/known_layouts.h"
#include "model/deepseek_v4/weight_walk.h"
#include "nibble/status.h"

namespace nibble::model {
namespace {

using ops::OpKind;

// Reads weights by canonical name, hands them to the backend, and counts them for the start-up
// table.
class Loader : public WeightVisitor {
 public:
  Loader(checkpoint::WeightBinder& binder, ops::Backend& backend)
      : binder_(binder), backend_(backend) {}

  ops::Matrix matrix(const std::string& kind, OpKind op, const std::string& name, std::int64_t rows,
                     std::int64_t cols) override {
    return keep(kind, op, binder_.matrix(name, rows, cols));
  }

  std::pair<ops::Matrix, ops::Matrix> gate_and_up(const std::string& kind, OpKind op,
                                                  const std::string& gate, const std::string& up,
                                                  std::int64_t rows, std::int64_t cols) override {
    auto [first, second] = binder_.gate_and_up(gate, up, rows, cols);
    const ops::Matrix w1 = keep(kind, op, std::move(first));
    return {w1, keep(kind, op, std::move(second))};
  }

  tensor::View vector(const std::string& name, const tensor::Shape& shape) override {
    const std::vector<float> values = binder_.vector_f32(name, shape);
    bytes += static_cast<std::int64_t>(values.size() * sizeof(float));
    return backend_.upload(std::span<const float>(values), shape);
  }

  tensor::View table(const std::string& name, const tensor::Shape& shape,
                     std::int64_t highest) override {
    const std::vector<std::int64_t> ids = binder_.ints(name, shape, 0, highest);
    const std::vector<std::int32_t> narrow(ids.begin(), ids.end());
    bytes += static_cast<std::int64_t>(narrow.size() * sizeof(std::int32_t));
    return backend_.upload(std::span<const std::int32_t>(narrow), shape);
  }

  // The start-up table, the largest first.
  std::vector<KernelChoice> kernels() const {
    std::vector<KernelChoice> table;
    for (const auto& [key, row] : rows_) table.push_back(row);
    std::stable_sort(table.begin(), table.end(), [](const KernelChoice& a, const KernelChoice& b) {
      return a.bytes > b.bytes;
    });
    return table;
  }

  std::int64_t bytes = 0;
  std::vector<checkpoint::FoundFormat> found;

 private:
  ops::Matrix keep(const std::string& kind, OpKind op, quant::HostMatrix host) {
    const auto size = static_cast<std::int64_t>(host.data.size() + host.scales.size());
    const std::string format = quant::format_name(host.format, host.scale_dtype);
    KernelChoice& row = rows_[kind + "|" + format];
    if (row.count == 0) {
      const ops::KernelInfo kernel = backend_.kernel(op, host.format, host.rows, host.cols);
      row.layer_kind = kind;
      row.format = format;
      row.kernel = kernel.name;
      row.unit = kernel.unit;
      found.push_back({weight_class(kind), host.format, host.scale_dtype, 0});
      found_at_[&row] = found.size() - 1;
    }
    ++row.count;
    ++found[found_at_[&row]].count;
    row.bytes += size;
    bytes += size;
    return backend_.upload(std::move(host));
  }

  checkpoint::WeightBinder& binder_;
  ops::Backend& backend_;
  std::map<std::string, KernelChoice> rows_;
  std::map<const KernelChoice*, std::size_t> found_at_;  // a map's rows stay where they are
};

}  // namespace

ModelWeights load_weights(checkpoint::WeightBinder& binder, const ModelConfig& config,
                          ops::Backend& backend) {
  const checkpoint::Folder& folder = binder.checkpoint().folder();
  const checkpoint::QuantClaims claims = checkpoint::read_quant_claims(folder);
  if (const auto reason = checkpoint::inspect_only_reason(claims.quant_method))
    throw CheckpointError(
        fmt::format("{}: {}; `nibble inspect` shows what it holds, serving it is not supported",
                    folder.path_of("config.json"), *reason));
  Loader loader(binder, backend);
  ModelWeights weights = walk_weights(binder, config, loader);
  binder.finish();
  weights.kernels = loader.kernels();
  weights.bytes = loader.bytes;
  for (const std::vector<std::string>& lines :
       {checkpoint::contradictions(claims, loader.found), binder.scale_lines()})
    weights.notes.insert(weights.notes.end(), lines.begin(), lines.end());
  return weights;
}

}  // namespace nibble::model
