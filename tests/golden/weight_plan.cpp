#include "golden/weight_plan.h"

#include <cmath>
#include <map>
#include <stdexcept>

namespace nibble::testing {
namespace {

constexpr std::int64_t kHeadDim = 512;
constexpr std::int64_t kIndexHeadDim = 128;
constexpr std::int64_t kStreams = 4;
constexpr std::int64_t kMix = (2 + kStreams) * kStreams;

// Appends the weights of one part of the model; the member functions follow deepseek-v4.md 7.2.
class Planner {
 public:
  explicit Planner(const RandomCheckpointSpec& spec) : s_(spec), d_(spec.hidden_size) {}

  std::vector<WeightPlan> plan() {
    bf16("embed.weight", {s_.vocab_size, d_}, 1.0);
    for (std::size_t layer = 0; layer < s_.compress_ratios.size(); ++layer) {
      const bool hashed = static_cast<int>(layer) < s_.num_hash_layers;
      block("layers." + std::to_string(layer) + ".", s_.compress_ratios[layer], hashed);
    }
    norm("norm.weight", d_, 1.0);
    hyper_connection("hc_head_", kStreams, 1);
    bf16("head.weight", {s_.vocab_size, d_}, 3.0 / root(d_));
    if (s_.dspark_stages > 0)
      dspark();
    else
      for (int m = 0; m < s_.mtp_layers; ++m) mtp("mtp." + std::to_string(m) + ".");
    return std::move(out_);
  }

 private:
  using Shape = std::vector<std::int64_t>;

  static double root(std::int64_t n) { return std::sqrt(static_cast<double>(n)); }
  void fp8(std::string name, Shape shape, double gain) {
    add(WeightKind::kFp8, name, shape, gain, 0.0);
  }
  void fp4(std::string name, Shape shape, double gain) {
    add(WeightKind::kFp4, name, shape, gain, 0.0);
  }
  void bf16(std::string name, Shape shape, double std) {
    add(WeightKind::kBf16, name, shape, std, 0.0);
  }
  void norm(std::string name, std::int64_t n, double mean) {
    add(WeightKind::kBf16, name, {n}, 0.25, mean);
  }
  void f32(std::string name, Shape shape, double std, double mean = 0.0) {
    add(WeightKind::kF32, name, shape, std, mean);
  }
  void add(WeightKind kind, const std::string& name, const Shape& shape, double gain,
           double offset) {
    out_.push_back({kind, name, shape, gain, offset});
  }

  void block(const std::string& p, int ratio, bool hashed) {
    norm(p + "attn_norm.weight", d_, 1.0);
    hyper_connection(p + "hc_attn_", kMix, 3);
    attention(p + "attn.", ratio);
    norm(p + "ffn_norm.weight", d_, 1.0);
    hyper_connection(p + "hc_ffn_", kMix, 3);
    ffn(p + "ffn.", hashed);
  }

  void mtp(const std::string& p) {
    norm(p + "enorm.weight", d_, 1.0);
    norm(p + "hnorm.weight", d_, 1.0);
    fp8(p + "e_proj", {d_, d_}, 1.0);
    fp8(p + "h_proj", {d_, d_}, 1.0);
    block(p, 0, false);
    norm(p + "norm.weight", d_, 1.0);
    hyper_connection(p + "hc_head_", kStreams, 1);
  }

  void dspark() {
    const std::string last = "mtp." + std::to_string(s_.dspark_stages - 1) + ".";
    const auto taps = static_cast<std::int64_t>(s_.dspark_target_layer_ids.size());
    const std::int64_t rank = s_.dspark_markov_rank;
    fp8("mtp.0.main_proj", {d_, taps * d_}, 1.0);
    norm("mtp.0.main_norm.weight", d_, 1.0);
    for (int stage = 0; stage < s_.dspark_stages; ++stage)
      block("mtp." + std::to_string(stage) + ".", 0, false);
    norm(last + "norm.weight", d_, 1.0);
    hyper_connection(last + "hc_head_", kStreams, 1);
    bf16(last + "markov_head.markov_w1.weight", {s_.vocab_size, rank}, 1.0);
    bf16(last + "markov_head.markov_w2.weight", {s_.vocab_size, rank}, 2.0 / root(rank));
    bf16(last + "confidence_head.proj.weight", {1, d_ + rank}, 1.0 / root(d_));
  }

  void hyper_connection(const std::string& p, std::int64_t rows, std::int64_t scales) {
    f32(p + "fn", {rows, kStreams * d_}, 1.0 / root(kStreams * d_));
    f32(p + "base", {rows}, 0.75);
    f32(p + "scale", {scales}, 0.25, 1.0);
  }

  void attention(const std::string& p, int ratio) {
    const std::int64_t width = s_.num_attention_heads * kHeadDim;
    const std::int64_t grouped = std::int64_t{s_.o_groups} * s_.o_lora_rank;
    f32(p + "attn_sink", {s_.num_attention_heads}, 1.5);
    fp8(p + "wq_a", {s_.q_lora_rank, d_}, 1.0);
    norm(p + "q_norm.weight", s_.q_lora_rank, 1.0);
    fp8(p + "wq_b", {width, s_.q_lora_rank}, 1.0);
    fp8(p + "wkv", {kHeadDim, d_}, 1.0);
    norm(p + "kv_norm.weight", kHeadDim, 1.5);
    fp8(p + "wo_a", {grouped, width / s_.o_groups}, 2.0);
    fp8(p + "wo_b", {d_, grouped}, 1.0);
    if (ratio != 0) compressor(p + "compressor.", kHeadDim, ratio);
    if (ratio == 4) {
      fp8(p + "indexer.wq_b", {s_.index_n_heads * kIndexHeadDim, s_.q_lora_rank}, 1.0);
      bf16(p + "indexer.weights_proj.weight", {s_.index_n_heads, d_}, 1.0 / root(d_));
      compressor(p + "indexer.compressor.", kIndexHeadDim, ratio);
    }
  }

  void compressor(const std::string& p, std::int64_t width, int ratio) {
    const std::int64_t rows = ratio == 4 ? 2 * width : width;
    f32(p + "ape", {ratio, rows}, 0.75);
    bf16(p + "wkv.weight", {rows, d_}, 1.0 / root(d_));
    bf16(p + "wgate.weight", {rows, d_}, 1.5 / root(d_));
    norm(p + "norm.weight", width, 1.5);
  }

  void ffn(const std::string& p, bool hashed) {
    const std::int64_t inner = s_.moe_intermediate_size;
    bf16(p + "gate.weight", {s_.n_routed_experts, d_}, 1.0 / root(d_));
    if (hashed) {
      add(WeightKind::kHashTable, p + "gate.tid2eid", {s_.vocab_size, s_.num_experts_per_tok}, 0.0,
          0.0);
    } else {
      f32(p + "gate.bias", {s_.n_routed_experts}, 0.2);
    }
    for (int e = 0; e < s_.n_routed_experts; ++e) {
      const std::string q = p + "experts." + std::to_string(e) + ".";
      fp4(q + "w1", {inner, d_}, 1.5);
      fp4(q + "w2", {d_, inner}, 1.0);
      fp4(q + "w3", {inner, d_}, 1.5);
    }
    fp8(p + "shared_experts.w1", {inner, d_}, 1.5);
    fp8(p + "shared_experts.w2", {d_, inner}, 1.0);
    fp8(p + "shared_experts.w3", {inner, d_}, 1.5);
  }

  const RandomCheckpointSpec& s_;
  std::int64_t d_;
  std::vector<WeightPlan> out_;
};

const std::map<std::string, std::string>& leaf_names() {
  static const std::map<std::string, std::string> names = {
      {"attn_norm.weight", "input_layernorm.weight"},
      {"ffn_norm.weight", "post_attention_layernorm.weight"},
      {"hc_attn_fn", "attn_hc.fn"},
      {"hc_attn_base", "attn_hc.base"},
      {"hc_attn_scale", "attn_hc.scale"},
      {"hc_ffn_fn", "ffn_hc.fn"},
      {"hc_ffn_base", "ffn_hc.base"},
      {"hc_ffn_scale", "ffn_hc.scale"},
      {"attn.attn_sink", "self_attn.sinks"},
      {"attn.wq_a.weight", "self_attn.q_a_proj.weight"},
      {"attn.q_norm.weight", "self_attn.q_a_norm.weight"},
      {"attn.wq_b.weight", "self_attn.q_b_proj.weight"},
      {"attn.wkv.weight", "self_attn.kv_proj.weight"},
      {"attn.kv_norm.weight", "self_attn.kv_norm.weight"},
      {"attn.wo_a.weight", "self_attn.o_a_proj.weight"},
      {"attn.wo_b.weight", "self_attn.o_b_proj.weight"},
      {"attn.compressor.ape", "self_attn.compressor.position_bias"},
      {"attn.compressor.wkv.weight", "self_attn.compressor.kv_proj.weight"},
      {"attn.compressor.wgate.weight", "self_attn.compressor.gate_proj.weight"},
      {"attn.compressor.norm.weight", "self_attn.compressor.kv_norm.weight"},
      {"attn.indexer.wq_b.weight", "self_attn.compressor.indexer.q_b_proj.weight"},
      {"attn.indexer.weights_proj.weight",
       "self_attn.compressor.indexer.scorer.weights_proj.weight"},
      {"attn.indexer.compressor.ape", "self_attn.compressor.indexer.position_bias"},
      {"attn.indexer.compressor.wkv.weight", "self_attn.compressor.indexer.kv_proj.weight"},
      {"attn.indexer.compressor.wgate.weight", "self_attn.compressor.indexer.gate_proj.weight"},
      {"attn.indexer.compressor.norm.weight", "self_attn.compressor.indexer.kv_norm.weight"},
      {"ffn.gate.weight", "mlp.gate.weight"},
      {"ffn.gate.bias", "mlp.gate.e_score_correction_bias"},
      {"ffn.gate.tid2eid", "mlp.gate.tid2eid"},
      {"ffn.shared_experts.w1.weight", "mlp.shared_experts.gate_proj.weight"},
      {"ffn.shared_experts.w2.weight", "mlp.shared_experts.down_proj.weight"},
      {"ffn.shared_experts.w3.weight", "mlp.shared_experts.up_proj.weight"},
  };
  return names;
}

}  // namespace

std::vector<WeightPlan> plan_weights(const RandomCheckpointSpec& spec) {
  return Planner(spec).plan();
}

std::string transformers_name(const std::string& published) {
  if (published == "embed.weight") return "model.embed_tokens.weight";
  if (published == "head.weight") return "lm_head.weight";
  if (published == "norm.weight") return "model.norm.weight";
  if (published.starts_with("hc_head_")) return "model.hc_head.hc_" + published.substr(8);
  if (!published.starts_with("layers."))
    throw std::invalid_argument("no transformers name for " + published);
  const std::size_t dot = published.find('.', 7);
  const std::string leaf = published.substr(dot + 1);
  const std::string layer = "model." + published.substr(0, dot + 1);
  if (leaf.starts_with("ffn.experts.")) return layer + "mlp" + leaf.substr(3);
  return layer + leaf_names().at(leaf);
}

}  // namespace nibble::testing
