#include "inspect/other_model.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <map>
#include <optional>
#include <string_view>

#include "checkpoint/json_guard.h"
#include "checkpoint/quote.h"
#include "checkpoint/weight_format.h"
#include "nibble/status.h"

namespace nibble::inspect {
namespace {

using checkpoint::TensorSource;
using checkpoint::WeightParts;

constexpr std::int64_t kMaxConfigBytes = 16 << 20;
constexpr std::size_t kNamesInAMessage = 4;

struct Role {
  std::string_view suffix;
  TensorSource WeightParts::*part;
};
constexpr Role kRoles[] = {
    {".weight", &WeightParts::weight},
    {".scale", &WeightParts::scale},
    {".global_scale", &WeightParts::global_scale},
    {".input_scale", &WeightParts::input_scale},
    {".weight_shape", &WeightParts::shape},
    {".weight_zero_point", &WeightParts::zero_point},
    {".weight_g_idx", &WeightParts::group_index},
};

std::map<std::string, WeightParts> gather(const checkpoint::Checkpoint& checkpoint,
                                          std::vector<std::string>& problems) {
  std::map<std::string, WeightParts> parts;
  for (const checkpoint::CheckpointTensor& stored : checkpoint.tensors()) {
    try {
      for (TensorSource& source : checkpoint::canonical_sources(stored, checkpoint.where(stored))) {
        for (const Role& role : kRoles) {
          if (!source.name.ends_with(role.suffix)) continue;
          const std::string stem = source.name.substr(0, source.name.size() - role.suffix.size());
          parts[stem].*role.part = std::move(source);
          break;
        }
      }
    } catch (const CheckpointError& error) {
      problems.emplace_back(error.what());
    }
  }
  return parts;
}

std::string layer_kind(const std::string& stem) {
  const std::string draft = stem.starts_with("mtp.") ? "MTP " : "";
  if (stem.find(".shared_experts.") != std::string::npos) return draft + "shared experts";
  if (stem.find(".experts.") != std::string::npos) return draft + "routed experts";
  if (stem.find(".compressor.") != std::string::npos) return draft + "compressors";
  if (stem.find(".indexer.") != std::string::npos) return draft + "indexer";
  if (stem.find(".attn.") != std::string::npos) return draft + "attention projections";
  if (stem == "embed") return "embedding";
  if (stem == "head") return "lm head";
  return draft + "others";
}

bool is_packed(tensor::DType dtype) {
  return dtype == tensor::DType::kI8 || dtype == tensor::DType::kU8 || dtype == tensor::DType::kI32;
}

// 0: nothing says.
std::int64_t columns(const std::string& stem, const TensorSource& weight,
                     const OtherConfig& config) {
  if (!is_packed(weight.stored->dtype)) return weight.shape[1];
  if (stem.find("experts.") == std::string::npos) return 0;
  return stem.ends_with(".w2") ? config.expert_dim : config.hidden_size;
}

}  // namespace

OtherConfig read_other_config(const checkpoint::Folder& folder) {
  OtherConfig config;
  if (!folder.has("config.json")) return config;
  const std::string text = folder.read_text("config.json", kMaxConfigBytes);
  if (checkpoint::json_problem(text)) return config;
  simdjson::dom::parser parser;
  simdjson::dom::object object;
  const simdjson::padded_string padded(text);
  if (parser.parse(padded).get(object) != simdjson::SUCCESS) return config;
  std::string_view type;
  if (object["model_type"].get(type) == simdjson::SUCCESS) config.model_type = type;
  const auto dim = [&](std::string_view key) {
    std::int64_t value = 0;
    const bool good = object[key].get(value) == simdjson::SUCCESS && value > 0 && value <= 1 << 20;
    return good ? value : 0;
  };
  config.hidden_size = dim("hidden_size");
  config.expert_dim = dim("moe_intermediate_size");
  return config;
}

std::vector<model::MatrixUse> other_matrices(const checkpoint::Checkpoint& checkpoint,
                                             const OtherConfig& config,
                                             std::vector<std::string>& notes,
                                             std::vector<std::string>& problems) {
  std::vector<model::MatrixUse> matrices;
  std::string unknown;
  std::size_t unknown_count = 0;
  for (auto& [stem, parts] : gather(checkpoint, problems)) {
    if (parts.weight.stored == nullptr || parts.weight.shape.rank() != 2) continue;
    const std::int64_t rows = parts.weight.shape[0], cols = columns(stem, parts.weight, config);
    if (cols == 0) {
      if (unknown_count++ < kNamesInAMessage)
        unknown += (unknown.empty() ? "" : ", ") + checkpoint::quote(stem);
      continue;
    }
    model::MatrixUse use{layer_kind(stem), ops::OpKind::kLinear, {}};
    use.source.name = stem;
    use.source.rows = rows;
    use.source.cols = cols;
    use.source.parts = parts;
    try {
      use.source.format = checkpoint::detect_format(checkpoint, parts, rows, cols);
      if (!use.source.format.missing.empty()) {
        problems.push_back(fmt::format("{}: expected {} beside it, found none",
                                       checkpoint::where(checkpoint, parts.weight),
                                       checkpoint::quote(stem + use.source.format.missing)));
        continue;
      }
    } catch (const CheckpointError& error) {
      problems.emplace_back(error.what());
      continue;
    }
    matrices.push_back(std::move(use));
  }
  if (unknown_count > 0)
    notes.push_back(fmt::format("{} packed matrices whose columns nothing tells: {}{}",
                                unknown_count, unknown,
                                unknown_count > kNamesInAMessage ? ", ..." : ""));
  return matrices;
}

}  // namespace nibble::inspect
