#include "plan/weight_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <tuple>

namespace nibble::plan {
namespace {

using ops::OpKind;

struct KindRule {
  std::string_view prefix;  // of a weight's name inside its block
  const char* kind;
  OpKind op;
  Split split;
  Read read = Read::kAll;
};

// The first that fits. A weight that none fits is a vector.
constexpr auto kRules = std::to_array<KindRule>({
    {"ffn.experts.", "routed experts", OpKind::kExperts, Split::kInner, Read::kExperts},
    {"ffn.shared_experts.", "shared experts", OpKind::kExperts, Split::kInner},
    {"ffn.gate", "router", OpKind::kRouter, Split::kWhole},
    {"attn.wq_a", "attention projections", OpKind::kLinear, Split::kWhole},
    {"attn.wkv", "attention projections", OpKind::kLinear, Split::kWhole},
    {"attn.wq_b", "attention projections", OpKind::kLinear, Split::kGroups},
    {"attn.wo_b", "attention projections", OpKind::kLinear, Split::kGroups},
    {"attn.wo_a", "grouped output projection", OpKind::kGroupedLinear, Split::kGroups},
    {"attn.compressor.", "compressors", OpKind::kLinear, Split::kWhole},
    {"attn.indexer.compressor.", "indexer", OpKind::kLinear, Split::kWhole},
    {"attn.indexer.", "indexer", OpKind::kLinear, Split::kIndexHeads},
    {"hc_", "hyper-connections", OpKind::kHyperConnection, Split::kWhole},
    {"embed", "embedding", OpKind::kEmbed, Split::kVocab, Read::kRow},
    {"head", "lm head", OpKind::kLinear, Split::kVocab},
    {"e_proj", "projections", OpKind::kLinear, Split::kWhole},
    {"h_proj", "projections", OpKind::kLinear, Split::kWhole},
    {"main_proj", "projections", OpKind::kLinear, Split::kWhole},
    {"markov_head.markov_w1", "Markov head", OpKind::kEmbed, Split::kVocab, Read::kRow},
    {"markov_head.", "Markov head", OpKind::kLinear, Split::kVocab},
    {"confidence_head.", "confidence head", OpKind::kLinear, Split::kWhole},
});

// A tensor's name: "layers.3." or "mtp.0.", the weight inside that block, and what part of the weight it is.
struct Name {
  std::string_view block, weight, part;
  bool draft = false;
};

Name split_name(std::string_view name) {
  Name out;
  for (const std::string_view scope : {std::string_view("layers."), std::string_view("mtp.")}) {
    if (!name.starts_with(scope)) continue;
    const std::size_t dot = name.find('.', scope.size());
    if (dot == std::string_view::npos) break;
    out.block = name.substr(0, dot + 1);
    out.draft = scope == "mtp.";
  }
  const std::string_view rest = name.substr(out.block.size());
  const std::size_t dot = rest.rfind('.');
  out.part = dot == std::string_view::npos ? std::string_view() : rest.substr(dot + 1);
  // Scales and packed codes belong to their weight; "ape", "tid2eid" and "hc_attn_fn" are weights of their own.
  if (out.part.starts_with("weight") || out.part == "scale" || out.part == "input_scale" ||
      out.part == "input_global_scale")
    out.weight = rest.substr(0, dot);
  else
    out.weight = rest, out.part = {};
  return out;
}

const KindRule* rule_for(std::string_view weight) {
  const auto found = std::ranges::find_if(
      kRules, [&](const KindRule& rule) { return weight.starts_with(rule.prefix); });
  return found == kRules.end() ? nullptr : &*found;
}

// Parts of a published block that are no matrix of a layer kind.
bool is_known_vector(std::string_view weight) {
  return weight.ends_with("norm") || weight.starts_with("hc_") || weight.ends_with("attn_sink") ||
         weight.ends_with(".ape") || weight.ends_with("tid2eid") || weight.ends_with("gate.bias");
}

void take(WeightTensors& t, std::string_view part, const TensorFact& fact) {
  t.bytes += fact.bytes;
  if (part.empty() || part == "weight")
    t.weight = &fact;
  else if (part == "weight_packed")
    t.packed = &fact;
  else if (part == "scale" || part == "weight_scale")
    t.scale = &fact;
  else if (part == "weight_scale_2" || part == "weight_global_scale")
    t.global_scale = &fact;
  else if (part == "weight_zero_point")
    t.zero_point = &fact;
}

class Grouper {
 public:
  explicit Grouper(const ModelFacts& facts) : config_(facts.config) {
    std::vector<std::pair<Name, const TensorFact*>> names;
    names.reserve(facts.tensors.size());
    for (const TensorFact& fact : facts.tensors) names.emplace_back(split_name(fact.name), &fact);
    std::ranges::sort(names, [](const auto& a, const auto& b) {
      return std::tie(a.first.block, a.first.weight) < std::tie(b.first.block, b.first.weight);
    });
    find_drafter(facts);
    for (std::size_t i = 0; i < names.size();) {
      const Name& name = names[i].first;
      WeightTensors tensors;
      for (; i < names.size() && names[i].first.block == name.block &&
             names[i].first.weight == name.weight;
           ++i)
        take(tensors, names[i].first.part, *names[i].second);
      add(name, tensors);
    }
    for (auto& [key, group] : groups_) out_.groups.push_back(std::move(group));
    if (unknown_ > 0)
      out_.notes.push_back(fmt::format(
          "{} tensors are none that this model has, the first is {}{}: counted as held whole by "
          "every GPU",
          unknown_, first_unknown_.block, first_unknown_.weight));
  }

  WeightGroups take_result() { return std::move(out_); }

 private:
  void find_drafter(const ModelFacts& facts) {
    for (const TensorFact& fact : facts.tensors) {
      const std::string_view name = fact.name;
      if (!name.starts_with("mtp.")) continue;
      if (out_.drafter == Drafter::kNone) out_.drafter = Drafter::kMtp;
      if (name.starts_with("mtp.0.main_proj")) out_.drafter = Drafter::kDspark;
      int stage = 0;
      std::from_chars(name.data() + 4, name.data() + name.size(), stage);
      out_.draft_stages = std::max(out_.draft_stages, stage + 1);
    }
  }

  void add(const Name& name, const WeightTensors& tensors) {
    const WeightFormat format = weight_format(tensors);
    const KindRule* rule = rule_for(name.weight);
    const bool matrix = rule && format.rows > 0 && !is_vector_of(name.weight);
    if (!matrix && !is_known_vector(name.weight) && unknown_++ == 0) first_unknown_ = name;
    WeightGroup group;
    group.draft = name.draft;
    group.vectors = !matrix;
    group.kind = matrix ? rule->kind : kVectorsKind;
    if (name.draft)
      group.kind = (out_.drafter == Drafter::kDspark ? "DSpark " : "MTP ") + group.kind;
    group.format = matrix ? format.name : "BF16, F32, I64";
    if (!matrix) group.op = OpKind::kNorm;
    if (matrix) {
      group.part = rule->prefix;
      if (group.part.ends_with('.')) group.part.pop_back();
      group.quant_format = format.format;
      group.arithmetic = format.arithmetic;
      group.op = rule->op;
      group.split = rule->split;
      group.read = rule->read;
    } else if (name.weight.ends_with("tid2eid")) {
      group.read = Read::kRow;
    }
    const int order =
        matrix ? static_cast<int>(rule - kRules.data()) : static_cast<int>(kRules.size());
    WeightGroup& sum =
        groups_.try_emplace({name.draft, order, group.format, static_cast<int>(group.read)}, group)
            .first->second;
    ++sum.count;
    sum.bytes += tensors.bytes;
    if (group.read == Read::kRow) {
      const TensorFact* rows = tensors.weight ? tensors.weight : tensors.packed;
      if (rows && rows->shape.rank() > 0 && rows->shape[0] > 0)
        sum.row_bytes += static_cast<double>(tensors.bytes) / static_cast<double>(rows->shape[0]);
    } else if (matrix) {
      const double all = 2.0 * static_cast<double>(format.rows) * static_cast<double>(format.cols);
      sum.flops += group.read == Read::kExperts
                       ? all * config_.experts_per_token / config_.num_experts
                       : all;
    }
  }

  // A norm, a bias or a positional table under a prefix whose matrices have a kind.
  static bool is_vector_of(std::string_view weight) {
    return weight.ends_with("norm") || weight.ends_with(".ape") || weight.ends_with("tid2eid") ||
           weight.ends_with(".bias") || weight.ends_with("_base") || weight.ends_with("_scale");
  }

  using Key = std::tuple<bool, int, std::string, int>;  // draft, rule, format, read

  const model::ModelConfig& config_;
  WeightGroups out_;
  std::map<Key, WeightGroup> groups_;
  int unknown_ = 0;
  Name first_unknown_;
};

}  // namespace

WeightGroups group_weights(const ModelFacts& facts) {
  return Grouper(facts).take_result();
}

}  // namespace nibble::plan
