#include "convert/metadata.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "convert/json_text.h"
#include "convert/source_walk.h"
#include "model/deepseek_v4/weight_walk.h"

namespace nibble::convert {
namespace {

using checkpoint::WeightClass;
using quant::Format;
using tensor::DType;

std::string text(std::string_view value) {
  return json_string(value);
}

std::string texts(const std::vector<std::string>& values) {
  std::vector<std::string> quoted(values.size());
  std::ranges::transform(values, quoted.begin(),
                         [](const std::string& v) { return json_string(v); });
  return json_array(quoted);
}

bool is_draft(const PlannedMatrix& m) {
  return m.kind == kUnusedDraftKind || model::weight_class(m.kind) == WeightClass::kDraft;
}

bool is_fp8(Format format) {
  return format == Format::kFp8Block128 || format == Format::kFp8Block32;
}

// "layers.3.attn.wq_a" as a pattern for every layer: "re:.*layers\.\d+\.attn\.wq_a$".
std::string pattern(std::string_view name) {
  std::string out = "re:.*";
  for (std::size_t i = 0; i < name.size(); ++i) {
    const bool begins = i == 0 || name[i - 1] == '.';
    std::size_t end = i;
    while (end < name.size() && name[end] >= '0' && name[end] <= '9') ++end;
    if (begins && end > i && (end == name.size() || name[end] == '.')) {
      out += "\\d+";
      i = end - 1;
    } else if (name[i] == '.') {
      out += "\\.";
    } else {
      out += name[i];
    }
  }
  return out + "$";
}

// What the matrices that stay as they are look like.
struct Kept {
  Format fp8 = Format::kFp8Block128;  // of the FP8 ones
  bool any_fp8 = false;
  bool e8m0_scales = true;             // of all of them, as written
  std::set<std::string> fp8_patterns;  // draft aside
  std::set<std::string> plain_patterns;
  std::vector<std::string> plain_names;
};

Kept kept_matrices(const Plan& plan) {
  Kept kept;
  for (const PlannedMatrix& m : plan.matrices) {
    if (m.converted || is_draft(m)) continue;
    const checkpoint::WeightFormat& format = m.source.format;
    if (!is_fp8(format.format)) {
      if (!m.plain()) continue;
      kept.plain_patterns.insert(pattern(m.source.name));
      kept.plain_names.push_back(m.source.name);
      continue;
    }
    kept.any_fp8 = true;
    kept.fp8 = format.format;
    kept.e8m0_scales =
        kept.e8m0_scales && plan.target != Target::kFp8 && format.scale_dtype == DType::kF8E8M0;
    kept.fp8_patterns.insert(pattern(m.source.name));
  }
  return kept;
}

// "layers.0.ffn.experts" and so on, in the order of the layers.
std::vector<std::string> expert_groups(const Plan& plan) {
  std::vector<std::string> groups;
  for (const PlannedMatrix& m : plan.matrices) {
    if (!m.converted) continue;
    std::string group = m.source.name.substr(0, m.source.name.find(".experts.") + 8);
    if (groups.empty() || groups.back() != group) groups.push_back(std::move(group));
  }
  return groups;
}

// DeepSeek's own: what is FP8, in which blocks, and how its scales are stored.
JsonMembers deepseek_quantization(const Kept& kept) {
  const auto block = quant::traits(kept.fp8).block_cols;
  JsonMembers q = {
      {"activation_scheme", text("dynamic")}, {"fmt", text("e4m3")}, {"quant_method", text("fp8")}};
  if (kept.e8m0_scales) q.emplace_back("scale_fmt", text("ue8m0"));
  q.emplace_back("weight_block_size", fmt::format("[{0}, {0}]", block));
  // Not FP8 though the method says so: only when the source was not either.
  if (!kept.any_fp8) q.emplace_back("modules_to_not_convert", texts(kept.plain_names));
  return q;
}

const std::vector<std::string> kModelOptIgnored = {"*.attn.*", "*.ffn.shared_experts.*", "head",
                                                   "mtp.*"};

std::string modelopt_producer(int indent) {
  return json_object({{"name", text("modelopt")}, {"version", text("dsv4-nvfp4-experts")}}, indent);
}

std::string modelopt_layers(const Plan& plan, int indent) {
  JsonMembers layers;
  for (const std::string& group : expert_groups(plan))
    layers.emplace_back(group, R"({"quant_algo": "NVFP4", "group_size": 16})");
  return json_object(layers, indent);
}

void add_modelopt(JsonMembers& q, const Plan& plan) {
  const std::string four_bits =
      R"({"dynamic": false, "num_bits": 4, "type": "float", "group_size": 16})";
  q.emplace_back("quant_algo", text("MIXED_PRECISION"));
  q.emplace_back("moe_quant_algo", text("NVFP4"));
  q.emplace_back("group_size", "16");
  q.emplace_back("kv_cache_quant_algo", "null");
  q.emplace_back("producer", modelopt_producer(4));
  q.emplace_back("config_groups",
                 json_object({{"group_0", json_object({{"input_activations", four_bits},
                                                       {"weights", four_bits},
                                                       {"targets", texts({"Linear"})}},
                                                      6)}},
                             4));
  q.emplace_back("quantized_layers", modelopt_layers(plan, 4));
  q.emplace_back("ignore", texts(kModelOptIgnored));
}

// compressed-tensors: a group of matrices each, by pattern.
JsonMembers compressed_tensors(const Kept& kept) {
  const auto block = quant::traits(kept.fp8).block_cols;
  JsonMembers groups;
  if (kept.any_fp8)
    groups.emplace_back(
        "group_0",
        json_object(
            {{"format", text("float-quantized")},
             {"targets", texts({kept.fp8_patterns.begin(), kept.fp8_patterns.end()})},
             {"weights",
              fmt::format(R"({{"num_bits": 8, "type": "float", "strategy": "block", )"
                          R"("block_structure": [{0}, {0}], "symmetric": true, "dynamic": false}})",
                          block)},
             {"input_activations",
              R"({"num_bits": 8, "type": "float", "strategy": "group", "group_size": 128, )"
              R"("symmetric": true, "dynamic": true})"}},
            6));
  groups.emplace_back(
      "group_1",
      json_object(
          {{"format", text("pack-quantized")},
           {"targets", texts({R"(re:.*ffn\.experts\.\d+\.w[123]$)"})},
           {"weights", R"({"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, )"
                       R"("symmetric": true, "dynamic": false, "actorder": null})"},
           {"input_activations", "null"}},
          6));
  std::vector<std::string> ignored(kept.plain_patterns.begin(), kept.plain_patterns.end());
  ignored.emplace_back(R"(re:.*mtp\..*)");
  JsonMembers q = {{"quant_method", text("compressed-tensors")},
                   {"format", text(kept.any_fp8 ? "mixed-precision" : "pack-quantized")},
                   {"quantization_status", text("compressed")},
                   {"kv_cache_scheme", "null"},
                   {"config_groups", json_object(groups, 4)},
                   {"ignore", texts(ignored)}};
  if (kept.any_fp8 && kept.e8m0_scales) q.emplace_back("scale_fmt", text("ue8m0"));
  return q;
}

}  // namespace

std::string converted_config(std::string_view source, const std::string& file, const Plan& plan) {
  const Kept kept = kept_matrices(plan);
  std::string expert_dtype;
  JsonMembers quantization;
  switch (plan.target) {
    case Target::kMxfp4:
      expert_dtype = "fp4";
      quantization = deepseek_quantization(kept);
      break;
    case Target::kNvfp4:
      expert_dtype = "fp4";
      quantization = deepseek_quantization(kept);
      add_modelopt(quantization, plan);
      break;
    case Target::kFp8:
      expert_dtype = "fp8";
      quantization = deepseek_quantization(kept);
      break;
    case Target::kInt4:
      quantization = compressed_tensors(kept);
      break;
    case Target::kBf16:
      break;
  }
  JsonMembers members;
  bool placed = false;
  for (auto& [key, value] : parse_members(source, file)) {
    if (key == "expert_dtype" || key == "compression_config") continue;
    if (plan.target == Target::kBf16 && (key == "torch_dtype" || key == "dtype"))
      value = text("bfloat16");
    if (key == "quantization_config") {
      if (!quantization.empty() && !placed) members.emplace_back(key, json_object(quantization, 2));
      placed = true;
      continue;
    }
    members.emplace_back(key, std::move(value));
  }
  if (!placed && !quantization.empty())
    members.emplace_back("quantization_config", json_object(quantization, 2));
  if (!expert_dtype.empty()) members.emplace_back("expert_dtype", text(expert_dtype));
  return json_object(members) + "\n";
}

std::string hf_quant_config(const Plan& plan) {
  if (plan.target != Target::kNvfp4) return {};
  return json_object({{"producer", modelopt_producer(2)},
                      {"quantization", json_object({{"quant_algo", text("MIXED_PRECISION")},
                                                    {"moe_quant_algo", text("NVFP4")},
                                                    {"kv_cache_quant_algo", "null"},
                                                    {"group_size", "16"},
                                                    {"quantized_layers", modelopt_layers(plan, 4)},
                                                    {"exclude_modules", texts(kModelOptIgnored)}},
                                                   2)}}) +
         "\n";
}

std::string shard_index(const Plan& plan) {
  std::map<std::string, const std::string*> shard_of;
  for (const PlannedShard& shard : plan.shards)
    for (const NewTensor& tensor : shard.tensors) shard_of[tensor.name] = &shard.name;
  JsonMembers weights;
  for (const auto& [name, shard] : shard_of) weights.emplace_back(name, json_string(*shard));
  return json_object(
             {{"metadata", json_object({{"total_size", std::to_string(plan.tensor_bytes)}}, 2)},
              {"weight_map", json_object(weights, 2)}}) +
         "\n";
}

}  // namespace nibble::convert
