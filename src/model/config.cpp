#include "model/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "model/json_keys.h"
#include "nibble/status.h"

namespace nibble::model {
namespace {

constexpr std::int64_t kMaxDim = 1 << 20;
constexpr std::int64_t kMaxConfigBytes = 16 << 20;

int dim(const JsonKeys& keys, std::string_view key, std::int64_t low = 1) {
  return static_cast<int>(keys.integer(key, low, kMaxDim));
}

std::vector<int> int_list(const JsonKeys& keys, std::string_view key) {
  std::vector<int> values;
  for (auto item : keys.array(key)) {
    std::int64_t value = 0;
    if (item.get(value) != simdjson::SUCCESS)
      keys.refuse(key, "a list of integers", simdjson::minify(item));
    values.push_back(static_cast<int>(value));
  }
  return values;
}

std::vector<std::string> text_list(const JsonKeys& keys, std::string_view key) {
  std::vector<std::string> values;
  for (auto item : keys.array(key)) {
    std::string_view value;
    if (item.get(value) != simdjson::SUCCESS)
      keys.refuse(key, "a list of strings", simdjson::minify(item));
    values.emplace_back(value);
  }
  return values;
}

// `compress_ratios` as published (an alias that readers have met: `compress_rates` as a list), or
// layer_types with a ratio per type as the transformers library saves it.
std::vector<int> compress_ratios(const JsonKeys& keys, int num_layers) {
  std::vector<int> ratios;
  std::string key = "compress_ratios";
  if (!keys.has(key) && keys.has("layer_types")) {
    key = "layer_types";
    const auto rates = keys.object("compress_rates");
    for (const std::string& type : text_list(keys, key)) {
      if (type == "sliding_attention") {
        ratios.push_back(0);
      } else if (rates && (type == "compressed_sparse_attention" ||
                           type == "heavily_compressed_attention")) {
        ratios.push_back(static_cast<int>(rates->integer(type, 1, kMaxDim)));
      } else {
        keys.refuse(key, "sliding_attention, or a type listed in compress_rates", type);
      }
    }
  } else {
    if (!keys.has(key) && keys.has("compress_rates")) key = "compress_rates";
    ratios = int_list(keys, key);
  }
  if (static_cast<int>(ratios.size()) < num_layers)
    keys.refuse(key, fmt::format("at least num_hidden_layers = {} entries", num_layers),
                fmt::format("{}", ratios.size()));
  for (const int ratio : ratios)
    if (ratio != 0 && ratio != 4 && ratio != 128)
      keys.refuse(key, "0, 4 or 128", fmt::format("{}", ratio));
  return ratios;
}

int hash_layers(const JsonKeys& keys, int num_layers) {
  if (keys.has("num_hash_layers") || !keys.has("mlp_layer_types"))
    return static_cast<int>(keys.integer("num_hash_layers", 0, num_layers));
  int count = 0;
  bool seen_scored = false;
  for (const std::string& type : text_list(keys, "mlp_layer_types")) {
    if (type == "hash_moe" && !seen_scored)
      ++count;
    else if (type == "moe")
      seen_scored = true;
    else
      keys.refuse("mlp_layer_types", "hash_moe layers, then moe layers", type);
  }
  return count;
}

std::optional<Yarn> yarn(const JsonKeys& keys) {
  const std::string type = keys.has("type") ? keys.text("type") : keys.text("rope_type");
  if (type == "default") return std::nullopt;
  if (type != "yarn") keys.refuse(keys.has("type") ? "type" : "rope_type", "yarn or default", type);
  return Yarn{keys.number("factor", 1.0, 1e6), keys.number("beta_fast", 1e-3, 1e6),
              keys.number("beta_slow", 1e-3, 1e6),
              keys.number("original_max_position_embeddings", 1.0, 1e9)};
}

// Published: rope_theta, compress_rope_theta and rope_scaling (yarn, for the compressed layers
// only). Nested: rope_parameters {main: {rope_theta, ...}, compress: {rope_theta, rope_type, ...}},
// or the yarn keys at its top level.
void read_rope(const JsonKeys& keys, ModelConfig& config) {
  const auto nested = keys.object("rope_parameters");
  const auto main = nested ? nested->object("main") : std::nullopt;
  const auto compress = nested ? nested->object("compress") : std::nullopt;
  if (main && compress) {
    config.rope.theta = main->number("rope_theta", 1.0, 1e12);
    config.compress_rope.theta = compress->number("rope_theta", 1.0, 1e12);
    config.compress_rope.yarn = yarn(*compress);
    return;
  }
  config.rope.theta = keys.number("rope_theta", 1.0, 1e12);
  config.compress_rope.theta = keys.number("compress_rope_theta", 1.0, 1e12);
  if (const auto scaling = keys.object("rope_scaling"))
    config.compress_rope.yarn = yarn(*scaling);
  else if (nested)
    config.compress_rope.yarn = yarn(*nested);
  else if (!keys.has("rope_scaling") && !keys.has("rope_parameters"))
    keys.refuse("rope_scaling", "an object of type yarn", "no such key");
}

void require_text(const JsonKeys& keys, std::string_view key, std::string_view value) {
  const std::string found = keys.text(key);
  if (found != value) keys.refuse(key, fmt::format("\"{}\"", value), fmt::format("\"{}\"", found));
}

void require_multiple(const JsonKeys& keys, std::string_view key, int value, int of) {
  if (value % of != 0)
    keys.refuse(key, fmt::format("a multiple of {}", of), fmt::format("{}", value));
}

TokenId token(const JsonKeys& keys, std::string_view key, int vocab_size) {
  return static_cast<TokenId>(keys.integer(key, 0, vocab_size - 1));
}

DsparkConfig dspark(const JsonKeys& keys, const ModelConfig& c) {
  DsparkConfig d;
  d.block_size = static_cast<int>(keys.integer("dspark_block_size", 1, kMaxDsparkBlock));
  d.markov_rank = dim(keys, "dspark_markov_rank");
  d.noise_token = token(keys, "dspark_noise_token_id", c.vocab_size);
  d.target_layers = int_list(keys, "dspark_target_layer_ids");
  if (d.target_layers.empty()) keys.refuse("dspark_target_layer_ids", "at least one layer", "none");
  // main_proj takes them in the order of the layers.
  if (!std::is_sorted(d.target_layers.begin(), d.target_layers.end(), std::less_equal<int>()))
    keys.refuse("dspark_target_layer_ids", "rising layers",
                fmt::format("{}", fmt::join(d.target_layers, ", ")));
  for (const int layer : d.target_layers)
    if (layer < 0 || layer >= c.num_layers)
      keys.refuse("dspark_target_layer_ids", fmt::format("layers 0 to {}", c.num_layers - 1),
                  fmt::format("{}", layer));
  return d;
}

void read_keys(const JsonKeys& keys, ModelConfig& c) {
  require_text(keys, "model_type", "deepseek_v4");
  c.vocab_size =
      static_cast<int>(keys.integer("vocab_size", 1, std::numeric_limits<int>::max() / 2));
  c.hidden_size = dim(keys, "hidden_size");
  c.num_layers = static_cast<int>(keys.integer("num_hidden_layers", 1, 4096));
  c.num_heads = dim(keys, "num_attention_heads");
  keys.integer("num_key_value_heads", 1, 1);  // one latent row is key and value of all heads
  c.head_dim = dim(keys, "head_dim");
  // A saved transformers config gives the rotary width as a share of head_dim.
  c.rope_head_dim =
      keys.has("qk_rope_head_dim") || !keys.has("partial_rotary_factor")
          ? dim(keys, "qk_rope_head_dim", 2)
          : static_cast<int>(c.head_dim * keys.number("partial_rotary_factor", 0.0, 1.0));
  c.q_lora_rank = dim(keys, "q_lora_rank");
  c.o_groups = dim(keys, "o_groups");
  c.o_lora_rank = dim(keys, "o_lora_rank");
  c.index_heads = dim(keys, "index_n_heads");
  c.index_head_dim = dim(keys, "index_head_dim");
  c.index_topk = dim(keys, "index_topk");
  c.sliding_window = dim(keys, "sliding_window");
  c.max_positions = static_cast<int>(keys.integer("max_position_embeddings", 1, 1 << 24));
  c.compress_ratios = compress_ratios(keys, c.num_layers);
  read_rope(keys, c);
  c.num_experts = dim(keys, "n_routed_experts");
  c.experts_per_token = static_cast<int>(keys.integer("num_experts_per_tok", 1, c.num_experts));
  if (keys.has("n_shared_experts")) keys.integer("n_shared_experts", 1, 1);
  c.expert_dim = dim(keys, "moe_intermediate_size");
  c.num_hash_layers = hash_layers(keys, c.num_layers);
  require_text(keys, "scoring_func", "sqrtsoftplus");
  if (keys.has("topk_method")) require_text(keys, "topk_method", "noaux_tc");
  if (!keys.boolean("norm_topk_prob")) keys.refuse("norm_topk_prob", "true", "false");
  require_text(keys, "hidden_act", "silu");
  if (keys.has("tie_word_embeddings") && keys.boolean("tie_word_embeddings"))
    keys.refuse("tie_word_embeddings", "false", "true");
  c.routed_scaling = static_cast<float>(keys.number("routed_scaling_factor", 0.0, 1e4));
  c.swiglu_limit = static_cast<float>(keys.number("swiglu_limit", 0.0, 1e6));
  c.hc_mult = static_cast<int>(keys.integer("hc_mult", 1, 16));
  c.hc_sinkhorn_iters = static_cast<int>(keys.integer("hc_sinkhorn_iters", 1, 1000));
  c.hc_eps = static_cast<float>(keys.number("hc_eps", 0.0, 1.0));
  c.rms_eps = static_cast<float>(keys.number("rms_norm_eps", 0.0, 1.0));
  c.num_mtp_layers = static_cast<int>(keys.integer("num_nextn_predict_layers", 0, 16));
  if (keys.has("dspark_target_layer_ids")) c.dspark = dspark(keys, c);
  c.bos_token = token(keys, "bos_token_id", c.vocab_size);
  c.eos_token = token(keys, "eos_token_id", c.vocab_size);
  if (const auto quantization = keys.object("quantization_config"))
    c.has_activation_scheme = quantization->has("activation_scheme");

  require_multiple(keys, "num_attention_heads", c.num_heads, c.o_groups);
  require_multiple(keys, "qk_rope_head_dim", c.rope_head_dim, 2);
  if (c.rope_head_dim > c.head_dim)
    keys.refuse("qk_rope_head_dim", "at most head_dim", fmt::format("{}", c.rope_head_dim));
  if (c.rope_head_dim > c.index_head_dim)
    keys.refuse("index_head_dim", "at least qk_rope_head_dim", fmt::format("{}", c.index_head_dim));
}

}  // namespace

ModelConfig ModelConfig::parse(std::string_view json, const std::string& file_name) {
  simdjson::dom::parser parser;
  simdjson::dom::object object;
  const simdjson::padded_string padded(json);
  if (const auto error = parser.parse(padded).get(object); error != simdjson::SUCCESS)
    throw CheckpointError(
        fmt::format("{}: not a JSON object: {}", file_name, simdjson::error_message(error)));
  ModelConfig config;
  read_keys(JsonKeys(object, file_name), config);
  return config;
}

ModelConfig ModelConfig::load(const checkpoint::Folder& folder) {
  return parse(folder.read_text("config.json", kMaxConfigBytes), folder.path_of("config.json"));
}

}  // namespace nibble::model
