#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "model/deepseek_v4/weights.h"

namespace nibble::model {
namespace {

using ops::OpKind;

// Reads weights by canonical name, hands them to the backend, and counts them for the start-up
// table.
class Loader {
 public:
  Loader(checkpoint::WeightBinder& binder, const ModelConfig& config, ops::Backend& backend,
         ModelWeights& out)
      : binder_(binder), c_(config), backend_(backend), out_(out) {}

  void run() {
    const std::int64_t d = c_.hidden_size;
    out_.embed = matrix("embedding", OpKind::kEmbed, "embed", c_.vocab_size, d);
    for (int l = 0; l < c_.num_layers; ++l)
      out_.layers.push_back(block(fmt::format("layers.{}.", l),
                                  c_.compress_ratios[static_cast<std::size_t>(l)],
                                  l < c_.num_hash_layers, ""));
    out_.head = head("");
    out_.lm_head = matrix("lm head", OpKind::kLinear, "head", c_.vocab_size, d);
    if (c_.num_mtp_layers > 0) drafter();
    binder_.finish();
    for (auto& [key, row] : rows_) out_.kernels.push_back(row);
    std::stable_sort(
        out_.kernels.begin(), out_.kernels.end(),
        [](const KernelChoice& a, const KernelChoice& b) { return a.bytes > b.bytes; });
  }

 private:
  void drafter() {
    if (!binder_.has("mtp.")) {
      out_.notes.push_back(fmt::format(
          "config.json promises {} MTP layer(s) but the files hold no mtp.* tensor: no drafting",
          c_.num_mtp_layers));
      return;
    }
    if (binder_.has("mtp.0.main_proj")) {
      binder_.declare_unused("mtp.", "DSpark drafter");
      out_.notes.push_back(
          "the files hold a DSpark drafter, which this version does not run: no drafting");
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
    out_.mtp = std::move(mtp);
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
      m.hash_table = expert_table(p + "gate.tid2eid");
    else
      m.bias = vector(p + "gate.bias", {c_.num_experts});
    for (int e = 0; e < c_.num_experts; ++e)
      m.routed.push_back(expert(kind + "routed experts", fmt::format("{}experts.{}.", p, e)));
    m.shared = expert(kind + "shared experts", p + "shared_experts.");
    return m;
  }

  ops::ExpertWeights expert(const std::string& kind, const std::string& p) {
    const std::int64_t d = c_.hidden_size, inner = c_.expert_dim;
    return {matrix(kind, OpKind::kExperts, p + "w1", inner, d),
            matrix(kind, OpKind::kExperts, p + "w3", inner, d),
            matrix(kind, OpKind::kExperts, p + "w2", d, inner)};
  }

  tensor::View expert_table(const std::string& name) {
    const tensor::Shape shape{c_.vocab_size, c_.experts_per_token};
    const std::vector<std::int64_t> ids = binder_.ints(name, shape, 0, c_.num_experts - 1);
    const std::vector<std::int32_t> experts(ids.begin(), ids.end());
    out_.bytes += static_cast<std::int64_t>(experts.size() * sizeof(std::int32_t));
    return backend_.upload(std::span<const std::int32_t>(experts), shape);
  }

  tensor::View vector(const std::string& name, const tensor::Shape& shape) {
    const std::vector<float> values = binder_.vector_f32(name, shape);
    out_.bytes += static_cast<std::int64_t>(values.size() * sizeof(float));
    return backend_.upload(std::span<const float>(values), shape);
  }

  ops::Matrix matrix(const std::string& kind, OpKind op, const std::string& name, std::int64_t rows,
                     std::int64_t cols) {
    quant::HostMatrix host = binder_.matrix(name, rows, cols);
    const auto bytes = static_cast<std::int64_t>(host.data.size() + host.scales.size());
    const std::string format = quant::format_name(host.format);
    KernelChoice& row = rows_[kind + "|" + format];
    if (row.count == 0) {
      const ops::KernelInfo kernel = backend_.kernel(op, host.format);
      row.layer_kind = kind;
      row.format = format;
      row.kernel = kernel.name;
      row.unit = kernel.unit;
    }
    ++row.count;
    row.bytes += bytes;
    out_.bytes += bytes;
    return backend_.upload(std::move(host));
  }

  checkpoint::WeightBinder& binder_;
  const ModelConfig& c_;
  ops::Backend& backend_;
  ModelWeights& out_;
  std::map<std::string, KernelChoice> rows_;
};

}  // namespace

ModelWeights load_weights(checkpoint::WeightBinder& binder, const ModelConfig& config,
                          ops::Backend& backend) {
  ModelWeights weights;
  Loader(binder, config, backend, weights).run();
  return weights;
}

}  // namespace nibble::model
