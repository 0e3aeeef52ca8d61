#include "model/deepseek_v4/weight_walk.h"

#include <fmt/format.h>

#include <algorithm>

namespace nibble::model {
namespace {

using ops::OpKind;

class Walk {
 public:
  Walk(checkpoint::WeightBinder& binder, const ModelConfig& config, WeightVisitor& visitor,
       ModelWeights& out)
      : binder_(binder), c_(config), visitor_(visitor), out_(out) {}

  void run() {
    const std::int64_t d = c_.hidden_size;
    // The drafter comes first: it compares its copies of the embedding and the head with the originals.
    if (c_.num_mtp_layers > 0) drafter();
    out_.embed = matrix("embedding", OpKind::kEmbed, "embed", c_.vocab_size, d);
    for (int l = 0; l < c_.num_layers; ++l)
      out_.layers.push_back(block(fmt::format("layers.{}.", l),
                                  c_.compress_ratios[static_cast<std::size_t>(l)],
                                  l < c_.num_hash_layers, ""));
    out_.head = head("");
    out_.lm_head = matrix("lm head", OpKind::kLinear, "head", c_.vocab_size, d);
  }

 private:
  void drafter() {
    if (!binder_.has("mtp.")) {
      out_.notes.push_back(fmt::format(
          "config.json promises {} MTP layer(s) but the files hold no mtp.* tensor: no drafting",
          c_.num_mtp_layers));
      return;
    }
    if (binder_.has("mtp.0.main_proj.")) {
      dspark();
      return;
    }
    const std::int64_t d = c_.hidden_size;
    MtpWeights mtp;
    mtp.e_proj = matrix("MTP projections", OpKind::kLinear, "mtp.0.e_proj", d, d);
    mtp.h_proj = matrix("MTP projections", OpKind::kLinear, "mtp.0.h_proj", d, d);
    mtp.enorm = vector("mtp.0.enorm.weight", {d});
    mtp.hnorm = vector("mtp.0.hnorm.weight", {d});
    mtp.block = block("mtp.0.", 0, false, "MTP ");
    mtp.head = head("mtp.0.");
    mtp.embed = own_copy("MTP embedding", OpKind::kEmbed, "mtp.0.emb.tok_emb", "embed");
    mtp.lm_head = own_copy("MTP lm head", OpKind::kLinear, "mtp.0.head", "head");
    out_.mtp = std::move(mtp);
  }

  void dspark() {
    if (!c_.dspark) {
      binder_.declare_unused("mtp.", "DSpark drafter");
      out_.notes.push_back(
          "the files hold a DSpark drafter, but config.json has no dspark_target_layer_ids: no "
          "drafting");
      return;
    }
    const std::int64_t d = c_.hidden_size, rank = c_.dspark->markov_rank;
    const auto taps = static_cast<std::int64_t>(c_.dspark->target_layers.size());
    DsparkWeights w;
    w.main_proj = matrix("DSpark projection", OpKind::kLinear, "mtp.0.main_proj", d, taps * d);
    w.main_norm = vector("mtp.0.main_norm.weight", {d});
    std::string last;
    for (int stage = 0; binder_.has(fmt::format("mtp.{}.", stage)); ++stage) {
      last = fmt::format("mtp.{}.", stage);
      w.stages.push_back(block(last, 0, false, "DSpark "));
      w.stages.back().attn.whole_segment = true;
    }
    w.head = head(last);
    const std::string markov = last + "markov_head.markov_w";
    w.markov_w1 = matrix("DSpark Markov head", OpKind::kEmbed, markov + "1", c_.vocab_size, rank);
    w.markov_w2 = matrix("DSpark Markov head", OpKind::kLinear, markov + "2", c_.vocab_size, rank);
    w.confidence = vector(last + "confidence_head.proj.weight", {1, d + rank});
    out_.dspark = std::move(w);
  }

  // Some exports give the drafter an embedding or a head of its own, usually the model's once more.
  ops::Matrix own_copy(const std::string& kind, OpKind op, const std::string& name,
                       const std::string& original) {
    if (!binder_.has(name + ".")) return {};
    if (binder_.same_bytes(name + ".weight", original + ".weight")) {
      binder_.declare_unused(name + ".", "the same bytes as " + original);
      return {};
    }
    return matrix(kind, op, name, c_.vocab_size, c_.hidden_size);
  }

  BlockWeights block(const std::string& p, int ratio, bool hashed, const std::string& kind) {
    const std::int64_t d = c_.hidden_size;
    BlockWeights b;
    b.attn_site = site(p + "hc_attn_");
    b.ffn_site = site(p + "hc_ffn_");
    b.attn_norm = vector(p + "attn_norm.weight", {d});
    b.ffn_norm = vector(p + "ffn_norm.weight", {d});
    b.attn = attention(p + "attn.", ratio, kind);
    b.ffn = moe(p + "ffn.", hashed, kind);
    return b;
  }

  ops::HcSite site(const std::string& p) {
    const std::int64_t hc = c_.hc_mult, mix = (2 + hc) * hc;
    return {vector(p + "fn", {mix, hc * c_.hidden_size}), vector(p + "base", {mix}),
            vector(p + "scale", {3})};
  }

  HeadWeights head(const std::string& p) {
    const std::int64_t hc = c_.hc_mult, d = c_.hidden_size;
    return {vector(p + "hc_head_fn", {hc, hc * d}), vector(p + "hc_head_base", {hc}),
            vector(p + "hc_head_scale", {1}), vector(p + "norm.weight", {d})};
  }

  AttentionWeights attention(const std::string& p, int ratio, const std::string& kind) {
    const std::int64_t d = c_.hidden_size, hd = c_.head_dim, heads = c_.num_heads;
    const std::int64_t o_rows = static_cast<std::int64_t>(c_.o_groups) * c_.o_lora_rank;
    const std::string projections = kind + "attention projections";
    AttentionWeights a;
    a.ratio = ratio;
    a.wq_a = matrix(projections, OpKind::kLinear, p + "wq_a", c_.q_lora_rank, d);
    a.wq_b = matrix(projections, OpKind::kLinear, p + "wq_b", heads * hd, c_.q_lora_rank);
    a.wkv = matrix(projections, OpKind::kLinear, p + "wkv", hd, d);
    a.wo_a = matrix(kind + "grouped output projection", OpKind::kGroupedLinear, p + "wo_a", o_rows,
                    heads * hd / c_.o_groups);
    a.wo_b = matrix(projections, OpKind::kLinear, p + "wo_b", d, o_rows);
    a.q_norm = vector(p + "q_norm.weight", {c_.q_lora_rank});
    a.kv_norm = vector(p + "kv_norm.weight", {hd});
    a.sink = vector(p + "attn_sink", {heads});
    if (ratio != 0) a.compressor = compressor(p + "compressor.", ratio, hd, "compressors");
    if (ratio == 4) {
      IndexerWeights indexer;
      indexer.wq_b =
          matrix("indexer", OpKind::kLinear, p + "indexer.wq_b",
                 static_cast<std::int64_t>(c_.index_heads) * c_.index_head_dim, c_.q_lora_rank);
      indexer.weights_proj =
          matrix("indexer", OpKind::kLinear, p + "indexer.weights_proj", c_.index_heads, d);
      indexer.compressor =
          compressor(p + "indexer.compressor.", ratio, c_.index_head_dim, "indexer");
      a.indexer = indexer;
    }
    return a;
  }

  CompressorWeights compressor(const std::string& p, int ratio, std::int64_t width,
                               const std::string& kind) {
    const std::int64_t stored = ratio == 4 ? 2 * width : width;
    return {matrix(kind, OpKind::kLinear, p + "wkv", stored, c_.hidden_size),
            matrix(kind, OpKind::kLinear, p + "wgate", stored, c_.hidden_size),
            vector(p + "ape", {ratio, stored}), vector(p + "norm.weight", {width})};
  }

  MoeWeights moe(const std::string& p, bool hashed, const std::string& kind) {
    MoeWeights m;
    m.gate = matrix(kind + "router", OpKind::kRouter, p + "gate", c_.num_experts, c_.hidden_size);
    if (hashed)
      m.hash_table = visitor_.table(p + "gate.tid2eid", {c_.vocab_size, c_.experts_per_token},
                                    c_.num_experts - 1);
    else
      m.bias = vector(p + "gate.bias", {c_.num_experts});
    for (int e = 0; e < c_.num_experts; ++e)
      m.routed.push_back(expert(kind + "routed experts", fmt::format("{}experts.{}.", p, e)));
    m.shared = expert(kind + "shared experts", p + "shared_experts.");
    return m;
  }

  ops::ExpertWeights expert(const std::string& kind, const std::string& p) {
    const std::int64_t d = c_.hidden_size, inner = c_.expert_dim;
    const auto [w1, w3] =
        visitor_.gate_and_up(kind, OpKind::kExperts, p + "w1", p + "w3", inner, d);
    return {w1, w3, matrix(kind, OpKind::kExperts, p + "w2", d, inner)};
  }

  ops::Matrix matrix(const std::string& kind, OpKind op, const std::string& name, std::int64_t rows,
                     std::int64_t cols) {
    return visitor_.matrix(kind, op, name, rows, cols);
  }
  tensor::View vector(const std::string& name, const tensor::Shape& shape) {
    return visitor_.vector(name, shape);
  }

  checkpoint::WeightBinder& binder_;
  const ModelConfig& c_;
  WeightVisitor& visitor_;
  ModelWeights& out_;
};

// Looks at headers only.
class HeaderVisitor : public WeightVisitor {
 public:
  explicit HeaderVisitor(checkpoint::WeightBinder& binder) : binder_(binder) {}

  ops::Matrix matrix(const std::string& kind, OpKind op, const std::string& name, std::int64_t rows,
                     std::int64_t cols) override {
    matrices.push_back({kind, op, binder_.locate_matrix(name, rows, cols)});
    return {};
  }
  std::pair<ops::Matrix, ops::Matrix> gate_and_up(const std::string& kind, OpKind op,
                                                  const std::string& gate, const std::string& up,
                                                  std::int64_t rows, std::int64_t cols) override {
    matrix(kind, op, gate, rows, cols);
    matrix(kind, op, up, rows, cols);
    return {};
  }
  tensor::View vector(const std::string& name, const tensor::Shape& shape) override {
    binder_.locate(name, shape);
    return {};
  }
  tensor::View table(const std::string& name, const tensor::Shape& shape, std::int64_t) override {
    binder_.locate(name, shape, true);
    return {};
  }

  std::vector<MatrixUse> matrices;

 private:
  checkpoint::WeightBinder& binder_;
};

}  // namespace

ModelWeights walk_weights(checkpoint::WeightBinder& binder, const ModelConfig& config,
                          WeightVisitor& visitor) {
  ModelWeights weights;
  Walk(binder, config, visitor, weights).run();
  return weights;
}

checkpoint::WeightClass weight_class(std::string_view kind) {
  using checkpoint::WeightClass;
  if (kind.starts_with("MTP") || kind.starts_with("DSpark")) return WeightClass::kDraft;
  if (kind == "routed experts") return WeightClass::kRoutedExperts;
  if (kind == "attention projections" || kind == "grouped output projection" ||
      kind == "shared experts")
    return WeightClass::kDense;
  return WeightClass::kOther;
}

std::vector<MatrixUse> list_matrices(checkpoint::WeightBinder& binder, const ModelConfig& config,
                                     std::vector<std::string>& notes) {
  HeaderVisitor visitor(binder);
  const ModelWeights weights = walk_weights(binder, config, visitor);
  binder.finish();
  notes.insert(notes.end(), weights.notes.begin(), weights.notes.end());
  return std::move(visitor.matrices);
}

std::vector<checkpoint::FoundFormat> found_formats(const std::vector<MatrixUse>& matrices) {
  std::vector<checkpoint::FoundFormat> found;
  for (const MatrixUse& use : matrices) {
    if (!use.source.found()) continue;
    const checkpoint::FoundFormat one{weight_class(use.kind), use.source.format.format,
                                      use.source.format.scale_dtype, 1};
    const auto same = std::ranges::find_if(found, [&](const checkpoint::FoundFormat& f) {
      return f.weights == one.weights && f.format == one.format && f.scale_dtype == one.scale_dtype;
    });
    if (same == found.end())
      found.push_back(one);
    else
      ++same->count;
  }
  return found;
}

}  // namespace nibble::model
