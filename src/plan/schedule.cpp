#include "plan/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "model/json_keys.h"
#include "nibble/status.h"

namespace nibble::plan {
namespace {

using tensor::DType;
using tensor::Shape;

constexpr std::int64_t blocks(std::int64_t n, std::int64_t size) {
  return (n + size - 1) / size;
}

class Schedule {
 public:
  Schedule(const model::ModelConfig& config, const DrafterShape& drafter, ExpertLayout experts)
      : c_(config), drafter_(drafter), experts_(experts) {}

  std::vector<TensorFact> run() {
    const std::int64_t d = c_.hidden_size;
    add("embed.weight", DType::kBF16, {c_.vocab_size, d});
    add("head.weight", DType::kBF16, {c_.vocab_size, d});
    add("norm.weight", DType::kBF16, {d});
    head_mix("");
    for (int l = 0; l < c_.num_layers; ++l)
      block(fmt::format("layers.{}.", l), c_.compress_ratios[static_cast<std::size_t>(l)],
            l < c_.num_hash_layers, experts_);
    if (drafter_.dspark_stages > 0)
      dspark();
    else
      for (int stage = 0; stage < c_.num_mtp_layers; ++stage) mtp(fmt::format("mtp.{}.", stage));
    return std::move(tensors_);
  }

 private:
  void add(std::string name, DType dtype, const Shape& shape) {
    const std::int64_t bytes = shape.elements() * tensor::dtype_bytes(dtype);
    tensors_.push_back({std::move(name), dtype, shape, bytes});
  }
  void bf16(const std::string& name, std::int64_t rows, std::int64_t cols) {
    add(name + ".weight", DType::kBF16, {rows, cols});
  }
  void fp8(const std::string& name, std::int64_t rows, std::int64_t cols) {
    add(name + ".weight", DType::kF8E4M3, {rows, cols});
    add(name + ".scale", DType::kF8E8M0, {blocks(rows, 128), blocks(cols, 128)});
  }
  void fp4(const std::string& name, std::int64_t rows, std::int64_t cols, ExpertLayout layout) {
    if (layout == ExpertLayout::kMxfp4) {
      add(name + ".weight", DType::kI8, {rows, cols / 2});
      add(name + ".scale", DType::kF8E8M0, {rows, cols / 32});
      return;
    }
    add(name + ".weight", DType::kU8, {rows, cols / 2});
    add(name + ".weight_scale", DType::kF8E4M3, {rows, cols / 16});
    add(name + ".weight_scale_2", DType::kF32, {});
    add(name + ".input_scale", DType::kF32, {});
  }

  void head_mix(const std::string& p) {
    const std::int64_t hc = c_.hc_mult;
    add(p + "hc_head_fn", DType::kF32, {hc, hc * c_.hidden_size});
    add(p + "hc_head_base", DType::kF32, {hc});
    add(p + "hc_head_scale", DType::kF32, {1});
  }

  void compressor(const std::string& p, int ratio, std::int64_t width) {
    const std::int64_t stored = ratio == 4 ? 2 * width : width;
    add(p + "ape", DType::kF32, {ratio, stored});
    bf16(p + "wkv", stored, c_.hidden_size);
    bf16(p + "wgate", stored, c_.hidden_size);
    add(p + "norm.weight", DType::kBF16, {width});
  }

  void attention(const std::string& p, int ratio) {
    const std::int64_t d = c_.hidden_size, hd = c_.head_dim, heads = c_.num_heads;
    const std::int64_t o_rows = static_cast<std::int64_t>(c_.o_groups) * c_.o_lora_rank;
    add(p + "attn_sink", DType::kF32, {heads});
    fp8(p + "wq_a", c_.q_lora_rank, d);
    add(p + "q_norm.weight", DType::kBF16, {c_.q_lora_rank});
    fp8(p + "wq_b", heads * hd, c_.q_lora_rank);
    fp8(p + "wkv", hd, d);
    add(p + "kv_norm.weight", DType::kBF16, {hd});
    fp8(p + "wo_a", o_rows, heads * hd / c_.o_groups);
    fp8(p + "wo_b", d, o_rows);
    if (ratio != 0) compressor(p + "compressor.", ratio, hd);
    if (ratio == 4) {
      fp8(p + "indexer.wq_b", static_cast<std::int64_t>(c_.index_heads) * c_.index_head_dim,
          c_.q_lora_rank);
      bf16(p + "indexer.weights_proj", c_.index_heads, d);
      compressor(p + "indexer.compressor.", ratio, c_.index_head_dim);
    }
  }

  void block(const std::string& p, int ratio, bool hashed, ExpertLayout experts) {
    const std::int64_t d = c_.hidden_size, hc = c_.hc_mult, inner = c_.expert_dim;
    add(p + "attn_norm.weight", DType::kBF16, {d});
    add(p + "ffn_norm.weight", DType::kBF16, {d});
    for (const char* site : {"hc_attn_", "hc_ffn_"}) {
      add(p + site + "fn", DType::kF32, {(2 + hc) * hc, hc * d});
      add(p + site + "base", DType::kF32, {(2 + hc) * hc});
      add(p + site + "scale", DType::kF32, {3});
    }
    attention(p + "attn.", ratio);
    bf16(p + "ffn.gate", c_.num_experts, d);
    if (hashed)
      add(p + "ffn.gate.tid2eid", DType::kI64, {c_.vocab_size, c_.experts_per_token});
    else
      add(p + "ffn.gate.bias", DType::kF32, {c_.num_experts});
    for (int e = 0; e < c_.num_experts; ++e) {
      const std::string expert = fmt::format("{}ffn.experts.{}.", p, e);
      fp4(expert + "w1", inner, d, experts);
      fp4(expert + "w3", inner, d, experts);
      fp4(expert + "w2", d, inner, experts);
    }
    fp8(p + "ffn.shared_experts.w1", inner, d);
    fp8(p + "ffn.shared_experts.w3", inner, d);
    fp8(p + "ffn.shared_experts.w2", d, inner);
  }

  void mtp(const std::string& p) {
    const std::int64_t d = c_.hidden_size;
    block(p, 0, false, ExpertLayout::kMxfp4);
    fp8(p + "e_proj", d, d);
    fp8(p + "h_proj", d, d);
    for (const char* norm : {"enorm", "hnorm", "norm"})
      add(p + norm + ".weight", DType::kBF16, {d});
    head_mix(p);
  }

  void dspark() {
    // Three backbone layers are tapped, whatever the number of stages (dspark_target_layer_ids).
    constexpr std::int64_t kTaps = 3;
    const std::int64_t d = c_.hidden_size, rank = drafter_.markov_rank;
    for (int stage = 0; stage < drafter_.dspark_stages; ++stage)
      block(fmt::format("mtp.{}.", stage), 0, false, ExpertLayout::kMxfp4);
    fp8("mtp.0.main_proj", d, kTaps * d);
    add("mtp.0.main_norm.weight", DType::kBF16, {d});
    const std::string last = fmt::format("mtp.{}.", drafter_.dspark_stages - 1);
    add(last + "norm.weight", DType::kBF16, {d});
    head_mix(last);
    bf16(last + "markov_head.markov_w1", c_.vocab_size, rank);
    bf16(last + "markov_head.markov_w2", c_.vocab_size, rank);
    bf16(last + "confidence_head.proj", 1, d + rank);
  }

  const model::ModelConfig& c_;
  const DrafterShape drafter_;
  const ExpertLayout experts_;
  std::vector<TensorFact> tensors_;
};

// deepseek-v4.md 1: what Flash and Pro share, then what differs.
model::ModelConfig base_config() {
  model::ModelConfig c;
  c.vocab_size = 129280;
  c.head_dim = 512;
  c.rope_head_dim = 64;
  c.o_lora_rank = 1024;
  c.index_heads = 64;
  c.index_head_dim = 128;
  c.sliding_window = 128;
  c.max_positions = 1048576;
  c.rope.theta = 10000;
  c.compress_rope.theta = 160000;
  c.compress_rope.yarn = model::Yarn{16, 32, 1, 65536};
  c.experts_per_token = 6;
  c.num_hash_layers = 3;
  c.swiglu_limit = 10.0f;
  c.hc_mult = 4;
  c.hc_sinkhorn_iters = 20;
  c.hc_eps = 1e-6f;
  c.rms_eps = 1e-6f;
  c.num_mtp_layers = 1;
  c.bos_token = 0;
  c.eos_token = 1;
  c.has_activation_scheme = true;
  return c;
}

// `first` for the first two layers, then 4 and 128 in turn, 0 for the drafter.
std::vector<int> ratios(int num_layers, int first) {
  std::vector<int> out{first, first};
  while (static_cast<int>(out.size()) < num_layers) out.push_back(out.size() % 2 == 0 ? 4 : 128);
  out.push_back(0);
  return out;
}

model::ModelConfig flash() {
  model::ModelConfig c = base_config();
  c.hidden_size = 4096;
  c.num_layers = 43;
  c.num_heads = 64;
  c.q_lora_rank = 1024;
  c.o_groups = 8;
  c.index_topk = 512;
  c.compress_ratios = ratios(43, 0);
  c.num_experts = 256;
  c.expert_dim = 2048;
  c.routed_scaling = 1.5f;
  return c;
}

model::ModelConfig pro() {
  model::ModelConfig c = base_config();
  c.hidden_size = 7168;
  c.num_layers = 61;
  c.num_heads = 128;
  c.q_lora_rank = 1536;
  c.o_groups = 16;
  c.index_topk = 1024;
  c.compress_ratios = ratios(61, 128);
  c.num_experts = 384;
  c.expert_dim = 3072;
  c.routed_scaling = 2.5f;
  return c;
}

// A config may claim any size; tensors are made one by one.
void check_schedule_size(const model::ModelConfig& c, const DrafterShape& drafter,
                         const std::string& config_path) {
  const double blocks = c.num_layers + c.num_mtp_layers + drafter.dspark_stages;
  const double experts = blocks * c.num_experts;
  if (experts > 100'000)
    throw CheckpointError(fmt::format(
        "{}: key 'n_routed_experts': expected at most 100000 experts in all layers, found {:.0f}",
        config_path, experts));
  const double matrix =
      static_cast<double>(c.hidden_size) *
      std::max({1.0 * c.vocab_size, 1.0 * c.expert_dim, c.num_heads * 1.0 * c.head_dim,
                1.0 * c.o_groups * c.o_lora_rank});
  if (matrix * experts > 1e17)
    throw CheckpointError(fmt::format(
        "{}: key 'hidden_size': dimensions so large that bytes cannot be counted", config_path));
}

constexpr DrafterShape kDspark{3, 256};

struct Published {
  std::string_view name;  // OWNER/NAME
  model::ModelConfig (*config)();
  DrafterShape drafter;
  ExpertLayout experts = ExpertLayout::kMxfp4;
};

// deepseek-v4.md 7.1 and 10.1, quantization.md 2.2.
constexpr auto kPublished = std::to_array<Published>({
    {"deepseek-ai/DeepSeek-V4-Flash", flash, {}},
    {"deepseek-ai/DeepSeek-V4-Pro", pro, {}},
    {"deepseek-ai/DeepSeek-V4-Flash-0731", flash, kDspark},
    {"deepseek-ai/DeepSeek-V4-Pro-0813", pro, kDspark},
    {"deepseek-ai/DeepSeek-V4-Flash-DSpark", flash, kDspark},
    {"deepseek-ai/DeepSeek-V4-Pro-DSpark", pro, kDspark},
    {"nvidia/DeepSeek-V4-Flash-NVFP4", flash, {}, ExpertLayout::kNvfp4},
    {"nvidia/DeepSeek-V4-Pro-NVFP4", pro, {}, ExpertLayout::kNvfp4},
});

}  // namespace

std::vector<TensorFact> published_tensors(const model::ModelConfig& config,
                                          const DrafterShape& drafter, ExpertLayout experts) {
  return Schedule(config, drafter, experts).run();
}

std::optional<ModelFacts> published_model(std::string_view name) {
  for (const Published& published : kPublished) {
    const std::string_view bare = published.name.substr(published.name.find('/') + 1);
    if (name != published.name && name != bare) continue;
    ModelFacts facts;
    facts.name = published.name;
    facts.source = "the published tensor schedule: formulas of its config, not its files";
    facts.config = published.config();
    facts.tensors = published_tensors(facts.config, published.drafter, published.experts);
    return facts;
  }
  return std::nullopt;
}

ModelFacts facts_from_config(std::string name, std::string_view config_text,
                             const std::string& config_path) {
  ModelFacts facts;
  facts.name = std::move(name);
  facts.source = fmt::format("{} alone: formulas, no weights are there", config_path);
  facts.config = model::ModelConfig::parse(config_text, config_path);
  simdjson::dom::parser parser;
  const simdjson::padded_string padded(config_text);
  simdjson::dom::object object;
  if (parser.parse(padded).get(object) != simdjson::SUCCESS)
    throw CheckpointError(fmt::format("{}: not a JSON object", config_path));
  const model::JsonKeys keys(object, config_path);
  const auto quantization = keys.object("quantization_config");
  if (!quantization || quantization->text("quant_method") != "fp8")
    keys.refuse("quantization_config", "quant_method fp8, since there are no weights to look at",
                quantization ? quantization->text("quant_method") : "no such key");
  if (keys.has("expert_dtype") && keys.text("expert_dtype") != "fp4")
    keys.refuse("expert_dtype", "fp4, since there are no weights to look at",
                keys.text("expert_dtype"));
  ExpertLayout experts = ExpertLayout::kMxfp4;
  if (quantization->has("moe_quant_algo") && quantization->text("moe_quant_algo") == "NVFP4")
    experts = ExpertLayout::kNvfp4;
  DrafterShape drafter;
  if (keys.has("dspark_markov_rank")) {
    drafter.markov_rank = static_cast<int>(keys.integer("dspark_markov_rank", 1, 1 << 20));
    // A ratio for each stage follows those of the layers (deepseek-v4.md 1).
    drafter.dspark_stages =
        static_cast<int>(facts.config.compress_ratios.size()) - facts.config.num_layers;
  }
  check_schedule_size(facts.config, drafter, config_path);
  facts.tensors = published_tensors(facts.config, drafter, experts);
  return facts;
}

std::string published_names() {
  std::string names;
  for (const Published& published : kPublished)
    names += (names.empty() ? "" : ", ") + std::string(published.name);
  return names;
}

}  // namespace nibble::plan
