#include "checkpoint/tensor_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_map>

#include "base/check.h"
#include "nibble/status.h"

namespace nibble::checkpoint {
namespace {

// '#' stands for a number of the name and is carried over in order; '*' for the expert a stacked
// tensor is cut into. A row covers the stem alone and the stem with a suffix of kSuffixes behind it.
struct Spelling {
  std::string_view other;
  std::string_view canonical;
  std::string_view canonical_second = {};  // the lower half of the rows of each expert
};

constexpr std::array kSpellings = {
    Spelling{"embed_tokens", "embed"},
    Spelling{"lm_head", "head"},
    Spelling{"hc_head.hc_fn", "hc_head_fn"},
    Spelling{"hc_head.hc_base", "hc_head_base"},
    Spelling{"hc_head.hc_scale", "hc_head_scale"},
    Spelling{"layers.#.input_layernorm", "layers.#.attn_norm"},
    Spelling{"layers.#.post_attention_layernorm", "layers.#.ffn_norm"},
    Spelling{"layers.#.attn_hc.fn", "layers.#.hc_attn_fn"},
    Spelling{"layers.#.attn_hc.base", "layers.#.hc_attn_base"},
    Spelling{"layers.#.attn_hc.scale", "layers.#.hc_attn_scale"},
    Spelling{"layers.#.ffn_hc.fn", "layers.#.hc_ffn_fn"},
    Spelling{"layers.#.ffn_hc.base", "layers.#.hc_ffn_base"},
    Spelling{"layers.#.ffn_hc.scale", "layers.#.hc_ffn_scale"},
    // attention
    Spelling{"layers.#.self_attn.sinks", "layers.#.attn.attn_sink"},
    Spelling{"layers.#.self_attn.q_a_proj", "layers.#.attn.wq_a"},
    Spelling{"layers.#.self_attn.q_a_norm", "layers.#.attn.q_norm"},
    Spelling{"layers.#.self_attn.q_b_proj", "layers.#.attn.wq_b"},
    Spelling{"layers.#.self_attn.kv_proj", "layers.#.attn.wkv"},
    Spelling{"layers.#.self_attn.kv_norm", "layers.#.attn.kv_norm"},
    Spelling{"layers.#.self_attn.o_a_proj", "layers.#.attn.wo_a"},
    Spelling{"layers.#.self_attn.o_b_proj", "layers.#.attn.wo_b"},
    // What transformers 5.17 writes when it saves in the "original" spelling: its rule for the compressor's norm, run backwards,
    // also hits this one.
    Spelling{"layers.#.attn.norm", "layers.#.attn.kv_norm"},
    // compressor, and the indexer with its own compressor flattened into it
    Spelling{"layers.#.self_attn.compressor.kv_proj", "layers.#.attn.compressor.wkv"},
    Spelling{"layers.#.self_attn.compressor.gate_proj", "layers.#.attn.compressor.wgate"},
    Spelling{"layers.#.self_attn.compressor.position_bias", "layers.#.attn.compressor.ape"},
    Spelling{"layers.#.self_attn.compressor.kv_norm", "layers.#.attn.compressor.norm"},
    Spelling{"layers.#.self_attn.compressor.indexer.q_b_proj", "layers.#.attn.indexer.wq_b"},
    Spelling{"layers.#.self_attn.compressor.indexer.scorer.weights_proj",
             "layers.#.attn.indexer.weights_proj"},
    Spelling{"layers.#.self_attn.compressor.indexer.kv_proj",
             "layers.#.attn.indexer.compressor.wkv"},
    Spelling{"layers.#.self_attn.compressor.indexer.gate_proj",
             "layers.#.attn.indexer.compressor.wgate"},
    Spelling{"layers.#.self_attn.compressor.indexer.position_bias",
             "layers.#.attn.indexer.compressor.ape"},
    Spelling{"layers.#.self_attn.compressor.indexer.kv_norm",
             "layers.#.attn.indexer.compressor.norm"},
    // experts
    Spelling{"layers.#.mlp.gate", "layers.#.ffn.gate"},
    Spelling{"layers.#.mlp.gate.e_score_correction_bias", "layers.#.ffn.gate.bias"},
    Spelling{"layers.#.mlp.gate.tid2eid", "layers.#.ffn.gate.tid2eid"},
    Spelling{"layers.#.mlp.shared_experts.gate_proj", "layers.#.ffn.shared_experts.w1"},
    Spelling{"layers.#.mlp.shared_experts.down_proj", "layers.#.ffn.shared_experts.w2"},
    Spelling{"layers.#.mlp.shared_experts.up_proj", "layers.#.ffn.shared_experts.w3"},
    Spelling{"layers.#.mlp.experts.#.gate_proj", "layers.#.ffn.experts.#.w1"},
    Spelling{"layers.#.mlp.experts.#.down_proj", "layers.#.ffn.experts.#.w2"},
    Spelling{"layers.#.mlp.experts.#.up_proj", "layers.#.ffn.experts.#.w3"},
    Spelling{"layers.#.mlp.experts.gate_up_proj", "layers.#.ffn.experts.*.w1.weight",
             "layers.#.ffn.experts.*.w3.weight"},
    Spelling{"layers.#.mlp.experts.gate_up_proj_scale_inv", "layers.#.ffn.experts.*.w1.scale",
             "layers.#.ffn.experts.*.w3.scale"},
    Spelling{"layers.#.mlp.experts.down_proj", "layers.#.ffn.experts.*.w2.weight"},
    Spelling{"layers.#.mlp.experts.down_proj_scale_inv", "layers.#.ffn.experts.*.w2.scale"},
};

struct Suffix {
  std::string_view other;
  std::string_view canonical;
};

// What may stand behind a stem. Both spellings of a global scale have one canonical name: the stored
// one says whether it is a multiplier or its reciprocal.
constexpr std::array kSuffixes = {
    Suffix{".weight", ".weight"},
    Suffix{".weight_packed", ".weight"},
    Suffix{".scale", ".scale"},
    Suffix{".weight_scale", ".scale"},
    Suffix{".weight_scale_inv", ".scale"},
    Suffix{".weight_scale_2", ".global_scale"},
    Suffix{".weight_global_scale", ".global_scale"},
    Suffix{".input_scale", ".input_scale"},
    Suffix{".input_global_scale", ".input_scale"},
    Suffix{".weight_shape", ".weight_shape"},
    Suffix{".weight_zero_point", ".weight_zero_point"},
    Suffix{".weight_g_idx", ".weight_g_idx"},
};

bool is_number(std::string_view part) {
  if (part.empty() || part.size() > 9 || (part.size() > 1 && part[0] == '0')) return false;
  for (const char c : part) {
    if (c < '0' || c > '9') return false;
  }
  return true;
}

// "layers.12.attn" -> "layers.#.attn" with {"12"}.
std::string generalise(std::string_view name, std::vector<std::string_view>& numbers) {
  std::string general;
  general.reserve(name.size());
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    if (is_number(part)) {
      general += '#';
      numbers.push_back(part);
    } else {
      general += part;
    }
    if (end < name.size()) general += '.';
    begin = end + 1;
  }
  return general;
}

std::string fill_in(std::string_view canonical, const std::vector<std::string_view>& numbers,
                    std::int64_t expert = 0) {
  std::string name;
  std::size_t next = 0;
  for (const char c : canonical) {
    if (c == '#') {
      name += numbers.at(next++);
    } else if (c == '*') {
      name += std::to_string(expert);
    } else {
      name += c;
    }
  }
  return name;
}

const Spelling* find_spelling(const std::string& general) {
  static const auto* const table = [] {
    auto* map = new std::unordered_map<std::string_view, const Spelling*>;
    for (const Spelling& row : kSpellings) {
      NIBBLE_CHECK(map->emplace(row.other, &row).second, "{} twice", row.other);
    }
    return map;
  }();
  const auto found = table->find(general);
  return found == table->end() ? nullptr : found->second;
}

TensorSource whole(std::string name, const CheckpointTensor& stored) {
  return {std::move(name), &stored, 0, stored.bytes, stored.shape};
}

// Cuts [E, R, C] into E tensors [R, C], or into 2E tensors [R/2, C] when the row names a second
// half.
std::vector<TensorSource> cut_into_experts(const Spelling& row, const CheckpointTensor& stored,
                                           const std::vector<std::string_view>& numbers,
                                           const std::string& where) {
  const int halves = row.canonical_second.empty() ? 1 : 2;
  const tensor::Shape& shape = stored.shape;
  // The limit bounds the work a header can ask for: a tensor without bytes could claim any number
  // of experts.
  if (shape.rank() != 3 || shape[0] < 1 || shape[0] > kMaxExperts || shape[1] % halves != 0 ||
      stored.bytes == 0) {
    throw CheckpointError(fmt::format(
        "{}: expected stacked experts [1..{} experts, {}, columns], none empty, found shape {}",
        where, kMaxExperts, halves == 2 ? "2 x rows" : "rows", shape.to_string()));
  }
  const tensor::Shape slice{shape[1] / halves, shape[2]};
  const std::int64_t bytes = stored.bytes / (shape[0] * halves);
  std::vector<TensorSource> sources;
  sources.reserve(static_cast<std::size_t>(shape[0] * halves));
  for (std::int64_t expert = 0; expert < shape[0]; ++expert) {
    for (int half = 0; half < halves; ++half) {
      const std::string_view name = half == 0 ? row.canonical : row.canonical_second;
      sources.push_back({fill_in(name, numbers, expert), &stored, (expert * halves + half) * bytes,
                         bytes, slice});
    }
  }
  return sources;
}

}  // namespace

std::vector<TensorSource> canonical_sources(const CheckpointTensor& stored,
                                            const std::string& where) {
  constexpr std::string_view kPrefix = "model.";
  std::string_view name = stored.name;
  if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
  // A name with the table's own wildcard in it would match a row without having the numbers for it.
  if (name.find('#') != std::string_view::npos) return {whole(std::string(name), stored)};

  std::vector<std::string_view> numbers;
  if (const Spelling* row = find_spelling(generalise(name, numbers))) {
    if (row->canonical.find('*') != std::string_view::npos) {
      return cut_into_experts(*row, stored, numbers, where);
    }
    return {whole(fill_in(row->canonical, numbers), stored)};
  }
  for (const Suffix& suffix : kSuffixes) {
    if (!name.ends_with(suffix.other)) continue;
    const std::string_view stem = name.substr(0, name.size() - suffix.other.size());
    numbers.clear();
    const Spelling* row = find_spelling(generalise(stem, numbers));
    const bool plain = row != nullptr && row->canonical.find('*') == std::string_view::npos;
    const std::string canonical = plain ? fill_in(row->canonical, numbers) : std::string(stem);
    return {whole(canonical + std::string(suffix.canonical), stored)};
  }
  return {whole(std::string(name), stored)};
}

}  // namespace nibble::checkpoint
