#include "golden/random_checkpoint.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>
#include <stdexcept>

#include "golden/random_values.h"
#include "golden/weight_plan.h"

namespace nibble::testing {
namespace {

constexpr double kE4m3Rms = 350.0;    // of the drawn codes, times 1.25 for the scale's jitter
constexpr double kE2m1Rms = 3.65625;  // the same

std::int64_t count_of(const std::vector<std::int64_t>& shape) {
  std::int64_t n = 1;
  for (const std::int64_t extent : shape) n *= extent;
  return n;
}

template <typename T>
Bytes as_bytes(const std::vector<T>& values) {
  Bytes bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

struct Quantised {
  RandomTensor weight;
  RandomTensor scale;
};

Quantised quantise(const RandomCheckpointSpec& spec, const WeightPlan& plan) {
  const std::int64_t rows = plan.shape[0];
  const std::int64_t cols = plan.shape[1];
  const Draws weight(plan.name + ".weight", spec.seed);
  const Draws scale(plan.name + ".scale", spec.seed);
  Quantised out;
  if (plan.kind == WeightKind::kFp8) {
    const std::vector<std::int64_t> blocks = {(rows + 127) / 128, (cols + 127) / 128};
    out.weight = {plan.name + ".weight", "F8_E4M3", plan.shape, e4m3_codes(weight, rows * cols)};
    out.scale = {plan.name + ".scale", "F8_E8M0", blocks,
                 e8m0_scales(scale, count_of(blocks), plan.gain, cols, kE4m3Rms)};
    return out;
  }
  if (cols % 32 != 0)
    throw std::invalid_argument(plan.name + ": FP4 needs columns in blocks of 32");
  out.weight = {plan.name + ".weight", "I8", {rows, cols / 2}, e2m1_pairs(weight, rows * cols / 2)};
  out.scale = {plan.name + ".scale",
               "F8_E8M0",
               {rows, cols / 32},
               e8m0_scales(scale, rows * cols / 32, plan.gain, cols, kE2m1Rms)};
  return out;
}

bool is_quantised(WeightKind kind) {
  return kind == WeightKind::kFp8 || kind == WeightKind::kFp4;
}

std::vector<float> float_values(const RandomCheckpointSpec& spec, const WeightPlan& plan) {
  if (is_quantised(plan.kind)) {
    const Quantised q = quantise(spec, plan);
    return plan.kind == WeightKind::kFp8
               ? dequantise_fp8(q.weight.bytes, q.scale.bytes, plan.shape[0], plan.shape[1])
               : dequantise_fp4(q.weight.bytes, q.scale.bytes, plan.shape[0], plan.shape[1]);
  }
  std::vector<float> values =
      normal_values(Draws(plan.name, spec.seed), count_of(plan.shape), plan.gain, plan.offset);
  if (plan.kind == WeightKind::kBf16) {
    for (float& v : values) v = bf16_value(to_bf16(v));
  }
  return values;
}

RandomTensor plain_tensor(const RandomCheckpointSpec& spec, std::string name,
                          std::vector<std::int64_t> shape, const std::vector<float>& values,
                          bool keep_f32) {
  if (spec.storage == Storage::kF32 || keep_f32)
    return {std::move(name), "F32", std::move(shape), as_bytes(values)};
  std::vector<std::uint16_t> bits(values.size());
  std::transform(values.begin(), values.end(), bits.begin(), to_bf16);
  return {std::move(name), "BF16", std::move(shape), as_bytes(bits)};
}

// Writes the experts of one layer as transformers stacks them, once the last one has come.
class ExpertStack {
 public:
  explicit ExpertStack(const RandomCheckpointSpec& spec) : spec_(spec) {}

  // Matrices come as w1, w2, w3 of expert 0, then of expert 1, ...
  void add(const std::string& name, const std::vector<float>& values,
           std::vector<RandomTensor>& out) {
    const bool down = arrived_ % 3 == 1;
    std::vector<float>& side = down ? down_ : gate_up_;
    side.insert(side.end(), values.begin(), values.end());
    if (++arrived_ < 3 * spec_.n_routed_experts) return;
    const std::string base = name.substr(0, name.find("experts.") + 8);
    const std::int64_t e = spec_.n_routed_experts, d = spec_.hidden_size,
                       i = spec_.moe_intermediate_size;
    out.push_back(plain_tensor(spec_, base + "gate_up_proj", {e, 2 * i, d}, gate_up_, false));
    out.push_back(plain_tensor(spec_, base + "down_proj", {e, d, i}, down_, false));
    arrived_ = 0;
    gate_up_.clear();
    down_.clear();
  }

 private:
  const RandomCheckpointSpec& spec_;
  int arrived_ = 0;
  std::vector<float> gate_up_, down_;
};

std::vector<RandomTensor> make_tensors(const RandomCheckpointSpec& spec) {
  std::vector<RandomTensor> out;
  ExpertStack experts(spec);
  for (const WeightPlan& plan : plan_weights(spec)) {
    if (spec.storage == Storage::kPublished && is_quantised(plan.kind)) {
      Quantised q = quantise(spec, plan);
      out.push_back(std::move(q.weight));
      out.push_back(std::move(q.scale));
      continue;
    }
    std::string name = plan.name + (is_quantised(plan.kind) ? ".weight" : "");
    if (spec.spelling == Spelling::kTransformers) {
      if (name.starts_with("mtp.")) continue;
      name = transformers_name(name);
    }
    if (plan.kind == WeightKind::kHashTable) {
      const Draws draw(plan.name, spec.seed);
      out.push_back({name, "I64", plan.shape,
                     as_bytes(hash_table(draw, spec.vocab_size, spec.num_experts_per_tok,
                                         spec.n_routed_experts))});
    } else if (spec.spelling == Spelling::kTransformers && plan.kind == WeightKind::kFp4) {
      experts.add(name, float_values(spec, plan), out);
    } else {
      out.push_back(plain_tensor(spec, name, plan.shape, float_values(spec, plan),
                                 plan.kind == WeightKind::kF32));
    }
  }
  return out;
}

std::string number(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%g", value);
  std::string out = text.data();
  return out.find_first_of(".e") == std::string::npos ? out + ".0" : out;
}

std::string number(int value) {
  return std::to_string(value);
}

std::string list(const std::vector<int>& values) {
  std::string text;
  for (const int value : values) text += (text.empty() ? "" : ", ") + number(value);
  return text;
}

std::vector<std::pair<std::string, std::string>> make_config(const RandomCheckpointSpec& s) {
  const bool published = s.storage == Storage::kPublished;
  std::string ratios = list(s.compress_ratios);
  const int drafters = s.dspark_stages > 0 ? s.dspark_stages : s.mtp_layers;
  for (int m = 0; m < drafters; ++m) ratios += ratios.empty() ? "0" : ", 0";
  std::vector<std::pair<std::string, std::string>> c = {
      {"architectures", "[\"DeepseekV4ForCausalLM\"]"},
      {"attention_bias", "false"},
      {"attention_dropout", "0.0"},
      {"bos_token_id", "0"},
      {"compress_ratios", "[" + ratios + "]"},
      {"compress_rope_theta", "160000"},
      {"eos_token_id", "1"},
      {"expert_dtype", "\"fp4\""},
      {"hc_eps", number(s.hc_eps)},
      {"hc_mult", "4"},
      {"hc_sinkhorn_iters", number(s.hc_sinkhorn_iters)},
      {"head_dim", "512"},
      {"hidden_act", "\"silu\""},
      {"hidden_size", number(s.hidden_size)},
      {"index_head_dim", "128"},
      {"index_n_heads", number(s.index_n_heads)},
      {"index_topk", number(s.index_topk)},
      {"max_position_embeddings", "1048576"},
      {"model_type", "\"deepseek_v4\""},
      {"moe_intermediate_size", number(s.moe_intermediate_size)},
      {"n_routed_experts", number(s.n_routed_experts)},
      {"n_shared_experts", "1"},
      {"norm_topk_prob", "true"},
      {"num_attention_heads", number(s.num_attention_heads)},
      {"num_experts_per_tok", number(s.num_experts_per_tok)},
      {"num_hash_layers", number(s.num_hash_layers)},
      {"num_hidden_layers", number(static_cast<int>(s.compress_ratios.size()))},
      {"num_key_value_heads", "1"},
      {"num_nextn_predict_layers", number(s.mtp_layers)},
      {"o_groups", number(s.o_groups)},
      {"o_lora_rank", number(s.o_lora_rank)},
      {"q_lora_rank", number(s.q_lora_rank)},
      {"qk_rope_head_dim", "64"},
      {"quantization_config",
       "{\"activation_scheme\": \"dynamic\", \"fmt\": \"e4m3\", \"quant_method\": \"fp8\", "
       "\"scale_fmt\": \"ue8m0\", "
       "\"weight_block_size\": [128, 128]}"},
      {"rms_norm_eps", number(s.rms_norm_eps)},
      {"rope_scaling",
       "{\"beta_fast\": 32, \"beta_slow\": 1, \"factor\": 16, "
       "\"original_max_position_embeddings\": 65536, "
       "\"type\": \"yarn\"}"},
      {"rope_theta", "10000"},
      {"routed_scaling_factor", number(s.routed_scaling_factor)},
      {"scoring_func", "\"sqrtsoftplus\""},
      {"sliding_window", "128"},
      {"swiglu_limit", number(s.swiglu_limit)},
      {"tie_word_embeddings", "false"},
      {"topk_method", "\"noaux_tc\""},
      {"torch_dtype", s.storage == Storage::kF32 ? "\"float32\"" : "\"bfloat16\""},
      {"vocab_size", number(s.vocab_size)},
  };
  if (s.dspark_stages > 0) {
    const auto at = std::find_if(c.begin(), c.end(),
                                 [](const auto& entry) { return entry.first == "eos_token_id"; });
    c.insert(at, {{"dspark_block_size", number(s.dspark_block_size)},
                  {"dspark_markov_rank", number(s.dspark_markov_rank)},
                  {"dspark_noise_token_id", number(s.dspark_noise_token_id)},
                  {"dspark_target_layer_ids", "[" + list(s.dspark_target_layer_ids) + "]"}});
  }
  if (!published) {
    std::erase_if(c, [](const auto& e) {
      return e.first == "expert_dtype" || e.first == "quantization_config";
    });
  }
  return c;
}

std::vector<RandomShard> deal(std::vector<RandomTensor> tensors, std::uint64_t max_shard_bytes) {
  std::vector<RandomShard> shards(1);
  std::uint64_t used = 0;
  for (RandomTensor& tensor : tensors) {
    if (!shards.back().tensors.empty() && used + tensor.bytes.size() > max_shard_bytes) {
      shards.emplace_back();
      used = 0;
    }
    used += tensor.bytes.size();
    shards.back().tensors.push_back(std::move(tensor));
  }
  for (std::size_t i = 0; i < shards.size(); ++i) {
    std::array<char, 64> name{};
    std::snprintf(name.data(), name.size(), "model-%05zu-of-%05zu.safetensors", i + 1,
                  shards.size());
    shards[i].file_name = name.data();
  }
  return shards;
}

// Larger element types first, so that every tensor is aligned to its element; unknown tags count as
// one byte.
int element_bytes(const std::string& dtype) {
  if (dtype == "I64") return 8;
  if (dtype == "F32") return 4;
  return dtype == "BF16" ? 2 : 1;
}

std::vector<const RandomTensor*> file_order(const std::vector<RandomTensor>& tensors) {
  std::vector<const RandomTensor*> order;
  order.reserve(tensors.size());
  for (const RandomTensor& tensor : tensors) order.push_back(&tensor);
  std::stable_sort(order.begin(), order.end(), [](const RandomTensor* a, const RandomTensor* b) {
    return element_bytes(a->dtype) > element_bytes(b->dtype);
  });
  return order;
}

void write_file(const std::filesystem::path& path, std::string_view content) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(content.data(), static_cast<std::streamsize>(content.size()));
  file.close();
  if (!file) throw std::runtime_error("cannot write " + path.string());
}

template <typename Checkpoint>
auto find_tensor(Checkpoint& checkpoint, std::string_view name) {
  for (auto& shard : checkpoint.shards) {
    const auto at = std::find_if(shard.tensors.begin(), shard.tensors.end(),
                                 [&](const RandomTensor& tensor) { return tensor.name == name; });
    if (at != shard.tensors.end()) return std::pair(&shard, at);
  }
  throw std::out_of_range("no tensor " + std::string(name));
}

}  // namespace

RandomCheckpointSpec golden_spec(char name) {
  RandomCheckpointSpec s;
  switch (name) {
    case 'a':
      s.seed = 20260401;
      s.hidden_size = 256;
      s.num_attention_heads = 4;
      s.q_lora_rank = 256;
      s.o_groups = 2;
      s.o_lora_rank = 128;
      s.index_n_heads = 8;
      s.index_topk = 16;
      s.compress_ratios = {0, 0, 4, 128, 4, 128};
      s.n_routed_experts = 16;
      s.num_experts_per_tok = 6;
      s.num_hash_layers = 3;
      s.routed_scaling_factor = 1.5;
      s.swiglu_limit = 2.0;
      return s;
    case 'b':
      s.seed = 20260402;
      s.hidden_size = 128;
      s.num_attention_heads = 8;
      s.q_lora_rank = 128;
      s.o_groups = 4;
      s.o_lora_rank = 128;
      s.index_n_heads = 16;
      s.index_topk = 24;
      s.compress_ratios = {128, 128, 4, 128, 4, 128, 4};
      s.n_routed_experts = 12;
      s.num_experts_per_tok = 3;
      s.num_hash_layers = 3;
      s.routed_scaling_factor = 2.5;
      s.swiglu_limit = 1.5;
      return s;
    case 'c':
      s.seed = 20260403;
      s.hidden_size = 128;
      s.num_attention_heads = 4;
      s.q_lora_rank = 128;
      s.o_groups = 4;
      s.o_lora_rank = 64;
      s.index_n_heads = 8;
      s.index_topk = 8;
      s.compress_ratios = {4, 0, 128, 4};
      s.n_routed_experts = 8;
      s.num_experts_per_tok = 2;
      s.num_hash_layers = 0;
      s.routed_scaling_factor = 1.25;
      s.swiglu_limit = 1.0;
      s.hc_sinkhorn_iters = 5;
      s.hc_eps = 1e-3;
      s.rms_norm_eps = 1e-5;
      return s;
    case 'd':
      s.seed = 20260404;
      s.index_n_heads = 8;
      s.compress_ratios = {0, 4, 128, 4};
      s.routed_scaling_factor = 1.25;
      s.swiglu_limit = 1.0;
      s.hc_sinkhorn_iters = 5;
      s.hc_eps = 1e-3;
      s.rms_norm_eps = 1e-5;
      s.dspark_stages = 3;
      s.dspark_noise_token_id = 300;
      s.dspark_target_layer_ids = {1, 2, 3};
      return s;
    default:
      throw std::invalid_argument(std::string("no golden configuration ") + name);
  }
}

RandomTensor& RandomCheckpoint::tensor(std::string_view name) {
  return *find_tensor(*this, name).second;
}

void RandomCheckpoint::remove_tensor(std::string_view name) {
  const auto [shard, at] = find_tensor(*this, name);
  shard->tensors.erase(at);
}

void RandomCheckpoint::set_config(std::string_view key, std::string json_text) {
  for (auto& [name, value] : config) {
    if (name == key) {
      value = std::move(json_text);
      return;
    }
  }
  config.emplace_back(key, std::move(json_text));
}

void RandomCheckpoint::remove_config(std::string_view key) {
  std::erase_if(config, [&](const auto& entry) { return entry.first == key; });
}

RandomCheckpoint make_random_checkpoint(const RandomCheckpointSpec& spec) {
  if (spec.spelling == Spelling::kTransformers && spec.storage == Storage::kPublished) {
    throw std::invalid_argument(
        "the transformers spelling stacks experts, which has no published FP4 form");
  }
  if (spec.num_experts_per_tok > spec.n_routed_experts ||
      spec.num_attention_heads % spec.o_groups != 0) {
    throw std::invalid_argument(
        "more experts a token than experts, or heads not divisible by o_groups");
  }
  return {make_config(spec), deal(make_tensors(spec), spec.max_shard_bytes)};
}

void write_checkpoint(const std::filesystem::path& dir, const RandomCheckpoint& checkpoint) {
  std::filesystem::create_directories(dir);
  write_file(dir / "config.json", config_text(checkpoint));
  for (const RandomShard& shard : checkpoint.shards)
    write_file(dir / shard.file_name, safetensors_bytes(shard.tensors));
  write_file(dir / "model.safetensors.index.json", index_text(checkpoint));
}

void write_random_checkpoint(const std::filesystem::path& dir, const RandomCheckpointSpec& spec) {
  write_checkpoint(dir, make_random_checkpoint(spec));
}

std::string config_text(const RandomCheckpoint& checkpoint) {
  std::string text = "{\n";
  for (const auto& [key, value] : checkpoint.config) {
    if (text.size() > 2) text += ",\n";
    text += "  \"" + key + "\": " + value;
  }
  return text + "\n}\n";
}

std::string index_text(const RandomCheckpoint& checkpoint) {
  std::uint64_t total = 0;
  std::string map;
  for (const RandomShard& shard : checkpoint.shards) {
    for (const RandomTensor& tensor : shard.tensors) {
      total += tensor.bytes.size();
      if (!map.empty()) map += ",\n";
      map += "    \"" + tensor.name + "\": \"" + shard.file_name + "\"";
    }
  }
  return "{\n  \"metadata\": {\"total_size\": " + std::to_string(total) +
         "},\n  \"weight_map\": {\n" + map + "\n  }\n}\n";
}

std::string safetensors_header(const std::vector<RandomTensor>& tensors) {
  std::string json = "{\"__metadata__\":{\"format\":\"pt\"}";
  std::uint64_t at = 0;
  for (const RandomTensor* tensor : file_order(tensors)) {
    std::string shape;
    for (const std::int64_t extent : tensor->shape)
      shape += (shape.empty() ? "" : ",") + std::to_string(extent);
    const std::uint64_t end = at + tensor->bytes.size();
    json += ",\"" + tensor->name + "\":{\"dtype\":\"" + tensor->dtype + "\",\"shape\":[" + shape +
            "],\"data_offsets\":[" + std::to_string(at) + "," + std::to_string(end) + "]}";
    at = end;
  }
  json += "}";
  json.resize((json.size() + 7) / 8 * 8, ' ');
  return json;
}

std::string safetensors_bytes(const std::vector<RandomTensor>& tensors) {
  const std::string header = safetensors_header(tensors);
  std::string out;
  for (int i = 0; i < 8; ++i) out.push_back(static_cast<char>((header.size() >> (8 * i)) & 0xFF));
  out += header;
  for (const RandomTensor* tensor : file_order(tensors)) {
    out.append(reinterpret_cast<const char*>(tensor->bytes.data()), tensor->bytes.size());
  }
  return out;
}

std::string sha256_hex(std::string_view bytes) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int length = 0;
  if (EVP_Digest(bytes.data(), bytes.size(), digest.data(), &length, EVP_sha256(), nullptr) != 1) {
    throw std::runtime_error("EVP_Digest failed");
  }
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string hex;
  for (unsigned int i = 0; i < length; ++i) {
    hex.push_back(kDigits[digest[i] >> 4]);
    hex.push_back(kDigits[digest[i] & 15]);
  }
  return hex;
}

std::string sha256_hex_of_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream content;
  content << file.rdbuf();
  if (!file) throw std::runtime_error("cannot read " + path.string());
  return sha256_hex(content.str());
}

}  // namespace nibble::testing
