#include "plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "nibble/status.h"
#include "plan/remedies.h"

namespace nibble::plan {
namespace {

constexpr const char* kNoKernel = "none yet";
constexpr const char* kNoUnit = "none";

LayerRow with_kernel(LayerRow row, const ops::KernelQuery& query) {
  const ops::KernelRow* kernel = ops::find_kernel(query);
  row.kernel = kernel ? std::string(kernel->name) : kNoKernel;
  row.unit = kernel ? ops::unit_name(kernel->unit) : kNoUnit;
  return row;
}

// Groups of one kind and format are one row, as in the start-up table; then the ops that read caches, not weights.
std::vector<LayerRow> layer_rows(const model::ModelConfig& config, const WeightGroups& weights,
                                 const PlanOptions& options, const RowSizes& cache) {
  const ops::Arch arch = options.gpu.machine.arch;
  std::map<std::pair<std::string, std::string>, LayerRow> merged;
  for (const WeightGroup& g : weights.groups) {
    LayerRow& row = merged[{g.kind, g.format}];
    if (row.count == 0) {
      row.kind = g.kind;
      row.format = g.format;
      row = with_kernel(row, {g.op, g.quant_format, arch});
    }
    row.count += g.count;
    row.bytes += g.bytes;
  }
  std::vector<LayerRow> rows;
  rows.reserve(merged.size());
  for (auto& [key, row] : merged) rows.push_back(std::move(row));
  std::ranges::stable_sort(rows, std::greater<>(), &LayerRow::bytes);

  const LayerCounts n = layer_counts(config);
  const quant::Format activations = quant::Format::kBF16;
  const std::string entries = fmt::format("{} rows", cache.name);
  const struct {
    const char* kind;
    std::int64_t count;
    std::string format;
    ops::OpKind op;
  } cached[] = {
      {"sparse attention", n.all(), entries, ops::OpKind::kAttention},
      {"index selection", n.csa, fmt::format("{} keys", cache.index_name), ops::OpKind::kIndexer},
      {"compression", n.csa + n.hca, entries, ops::OpKind::kCompressor}};
  for (const auto& op : cached)
    if (op.count > 0)
      rows.push_back(
          with_kernel({op.kind, op.count, op.format, 0, "", ""}, {op.op, activations, arch}));
  return rows;
}

std::vector<std::string> notes(const ModelFacts& facts, const WeightGroups& weights,
                               const PlanOptions& options) {
  std::vector<std::string> out = facts.notes;
  out.insert(out.end(), weights.notes.begin(), weights.notes.end());
  const model::ModelConfig& c = facts.config;
  const int n = options.gpu.count;
  if (c.o_groups % n != 0 || c.num_heads % n != 0)
    out.push_back(
        fmt::format("{} GPUs do not divide the model's {} output groups: memory and time are "
                    "those of the fullest GPU",
                    n, c.o_groups));
  if (c.num_mtp_layers > 0 && weights.drafter == Drafter::kNone)
    out.push_back("the config promises a drafter but there is no mtp.* tensor: no drafting");
  return out;
}

}  // namespace

Plan make_plan(const ModelFacts& facts, const PlanOptions& options, std::int64_t disk_free_bytes) {
  const model::ModelConfig& config = facts.config;
  if (options.context > config.max_positions)
    throw Error(ExitCode::kUsage, fmt::format("--context {}: {} allows at most {}", options.context,
                                              facts.name, config.max_positions));
  check_plannable(config, options);
  const WeightGroups weights = group_weights(facts);
  Plan plan;
  plan.model = facts.name;
  plan.source = facts.source;
  plan.options = options;
  const RowSizes cache =
      row_sizes(config, resolve_kv_dtype(options.kv_dtype, config, options.gpu.machine.arch));
  plan.kv_dtype = cache.name;
  plan.download_bytes = facts.download_bytes.value_or(facts.tensor_bytes());
  plan.here = facts.here;
  plan.disk_free_bytes = disk_free_bytes;
  plan.tensors = static_cast<std::int64_t>(facts.tensors.size());
  plan.memory = plan_memory(config, weights, options);
  plan.layers = layer_rows(config, weights, options, cache);
  plan.speed = plan_speed(config, weights, options);
  plan.sequences_that_fit = sequences_that_fit(config, weights, options);
  plan.remedies = remedies(config, weights, options);
  if (!facts.here && plan.download_bytes > disk_free_bytes)
    plan.remedies.push_back(
        fmt::format("disk: free another {} bytes ({:.1f} GB), or point HF_HOME to a larger disk",
                    plan.download_bytes - disk_free_bytes,
                    static_cast<double>(plan.download_bytes - disk_free_bytes) / 1e9));
  plan.notes = notes(facts, weights, options);
  return plan;
}

}  // namespace nibble::plan
