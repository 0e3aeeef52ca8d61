#include "plan/speed.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace nibble::plan {
namespace {

using model::ModelConfig;

double group_bytes(const WeightGroup& g, const ModelConfig& c, double tokens) {
  const auto bytes = static_cast<double>(g.bytes);
  switch (g.read) {
    case Read::kAll:
      return bytes;
    case Read::kRow:
      return std::min(bytes, tokens * g.row_bytes);
    case Read::kExperts:
      return bytes * distinct_experts(c.num_experts, c.experts_per_token, tokens) / c.num_experts;
  }
  return bytes;
}

// Of the arithmetic a format was made for, the narrowest this machine has (quantization.md 4.3): no FP4 on Hopper, where
// NVFP4 is widened to bf16 and MXFP4 folded into FP8.
double nominal_flops(const Machine& m, Arithmetic arithmetic) {
  if (arithmetic == Arithmetic::kFp4 && m.fp4 > 0.0) return m.fp4;
  if (arithmetic == Arithmetic::kFp8 && m.fp8 > 0.0) return m.fp8;
  return m.bf16;
}

struct Time {
  double s = 0.0, floor_bytes = 0.0, floor_flops_s = 0.0;
};

class Speed {
 public:
  Speed(const ModelConfig& config, const WeightGroups& weights, const PlanOptions& options)
      : c_(config),
        w_(weights),
        o_(options),
        m_(options.gpu.machine),
        n_(options.gpu.count),
        rows_(row_sizes(config, resolve_kv_dtype(options.kv_dtype, config, m_.arch))) {}

  SpeedPlan run() {
    out_.measured = true;
    explain_machine();
    for (const int batch : kBatches) decode(batch);
    prefill();
    return std::move(out_);
  }

 private:
  void line(std::string what, std::string how, std::string value) {
    out_.lines.push_back({std::move(what), std::move(how), std::move(value)});
  }

  void explain_machine() {
    line("machine", std::string(m_.source), std::string(m_.kind));
    line(
        "memory",
        fmt::format("nominal {:.4g} GB/s x {:.2f} when reading", m_.bandwidth / 1e9, m_.read_share),
        fmt::format("{:.4g} GB/s", m_.bandwidth * m_.read_share / 1e9));
    line("arithmetic",
         fmt::format("nominal bf16 {:.4g}, FP8 {:.4g}, FP4 {:.4g} TFLOP/s x {:.2f}", m_.bf16 / 1e12,
                     m_.fp8 / 1e12, m_.fp4 / 1e12, m_.tensor_share),
         fmt::format("{:.4g} TFLOP/s bf16", m_.bf16 * m_.tensor_share / 1e12));
    line("launches", fmt::format("{} a step x {:.2f} us", step_launches(c_), m_.launch_s * 1e6),
         fmt::format("{:.3f} ms", launches_s() * 1e3));
    if (n_ > 1)
      line("link", std::string(m_.link.name),
           fmt::format("{:.4g} GB/s, {:.1f} us", m_.link.bytes_per_s / 1e9,
                       m_.link.latency_s * 1e6));
  }

  double launches_s() const { return static_cast<double>(step_launches(c_)) * m_.launch_s; }

  ops::KernelRates rates(Arithmetic arithmetic) const {
    return {m_.bandwidth * m_.read_share, nominal_flops(m_, arithmetic) * m_.tensor_share, 0.0};
  }

  // Seconds that one GPU works on `work`, and what an ideal machine would need for `whole`, all GPUs' work together.
  void add(Time& time, const ops::KernelQuery& query, Arithmetic arithmetic,
           const ops::KernelWork& work, const ops::KernelWork& whole) {
    const ops::KernelRow* row = ops::find_kernel(query);
    out_.measured = out_.measured && row && row->measured;
    time.s += (row ? row->cost : ops::roofline_s)(work, rates(arithmetic));
    time.floor_bytes += whole.bytes;
    time.floor_flops_s += whole.flops / (nominal_flops(m_, arithmetic) * n_);
  }

  // The weights of the backbone, once for a step of `tokens` tokens.
  Time weights_time(double tokens, ops::Phase phase) {
    Time time;
    for (const WeightGroup& g : w_.groups) {
      if (g.draft) continue;
      const ops::KernelWork whole{group_bytes(g, c_, tokens), g.flops * tokens, 0.0};
      const double share = split_share(g.split, c_, n_).ratio();
      add(time, {g.op, g.quant_format, m_.arch, phase, static_cast<std::int64_t>(tokens)},
          g.arithmetic, {whole.bytes * share, whole.flops * share, 0.0}, whole);
    }
    return time;
  }

  // Scores and sums over the latent rows (K = V), and the indexer's scores.
  void attention_time(Time& time, double tokens, const KeyCounts& keys, double bytes,
                      ops::Phase phase) {
    const double attend = 4.0 * c_.num_heads * c_.head_dim * keys.attended * tokens;
    const double score = 2.0 * c_.index_heads * c_.index_head_dim * keys.scored * tokens;
    const double heads = split_share(Split::kGroups, c_, n_).ratio();
    const double index_heads = split_share(Split::kIndexHeads, c_, n_).ratio();
    const auto rows = static_cast<std::int64_t>(tokens);
    // Each GPU reads the whole cache: its heads share one row.
    add(time, {ops::OpKind::kAttention, std::nullopt, m_.arch, phase, rows}, Arithmetic::kBf16,
        {bytes, attend * heads, 0.0}, {bytes, attend, 0.0});
    add(time, {ops::OpKind::kIndexer, quant::Format::kBF16, m_.arch, phase, rows}, Arithmetic::kFp8,
        {0.0, score * index_heads, 0.0}, {0.0, score, 0.0});
  }

  // Two sums of hidden rows a layer. In a CSA layer either index scores are summed over the GPUs' indexer heads
  // (deepseek-v4.md 3.10), or, when that is less, index queries (FP8) and selected ids are exchanged and each GPU scores a
  // part of the rows. A small message is pushed to every peer, a large one reduced in pieces.
  double links_s(double tokens, double entries) const {
    if (n_ == 1) return 0.0;
    const auto reduce = [&](double bytes) {
      const double pushed = (n_ - 1) * bytes, in_pieces = 2.0 * bytes * (n_ - 1) / n_;
      return m_.link.latency_s + std::min(pushed / m_.link.bytes_per_s,
                                          m_.link.latency_s + in_pieces / m_.link.bytes_per_s);
    };
    const double exchanged = 1.0 * c_.index_heads * c_.index_head_dim + 4.0 * c_.index_topk;
    const LayerCounts n = layer_counts(c_);
    return static_cast<double>(2 * n.all()) * reduce(tokens * c_.hidden_size * 2.0) +
           static_cast<double>(n.csa) * reduce(tokens * std::min(entries * 4.0, exchanged));
  }

  double floor_s(const Time& time) const {
    return std::max(time.floor_bytes / (m_.bandwidth * n_), time.floor_flops_s);
  }

  void decode(int batch) {
    const auto cache =
        static_cast<double>(batch) * static_cast<double>(read_bytes(c_, rows_, o_.context));
    Time time = weights_time(batch, ops::Phase::kDecode);
    const double weights_s = time.s;
    attention_time(time, batch, keys_at(c_, o_.context - 1), cache, ops::Phase::kDecode);
    const double links = links_s(batch, static_cast<double>(o_.context) / 4.0);
    const double total = time.s + launches_s() + links;
    DecodeEstimate e;
    e.batch = batch;
    e.bytes = std::llround(step_weight_bytes(w_, c_, batch) + cache);
    e.ms = total * 1e3;
    e.floor_ms = floor_s(time) * 1e3;
    e.tokens_per_s = batch / total;
    out_.decode.push_back(e);
    line(fmt::format("decode, batch {}", batch),
         fmt::format("{:.2f} experts a layer; weights {:.1f} MB, cache {:.1f} MB; weights {:.3f} + "
                     "attention {:.3f} + launches {:.3f} + links {:.3f} ms",
                     distinct_experts(c_.num_experts, c_.experts_per_token, batch),
                     step_weight_bytes(w_, c_, batch) / 1e6, cache / 1e6, weights_s * 1e3,
                     (time.s - weights_s) * 1e3, launches_s() * 1e3, links * 1e3),
         fmt::format("{:.3f} ms", e.ms));
  }

  void prefill() {
    const std::int64_t most = std::min(step_rows(o_), o_.context);
    const std::int64_t count = (o_.context + most - 1) / most;
    const auto steps = static_cast<double>(count);
    const double sum = static_cast<double>(o_.context), chunk = sum / steps;  // equal steps
    Time time = weights_time(chunk, ops::Phase::kPrefill);
    const double weights_s = time.s;
    const KeyCounts keys = mean_keys(c_, o_.context);
    // Keys of a chunk are read once for all its rows: no more than the cache at its end.
    attention_time(time, chunk, keys, static_cast<double>(read_bytes(c_, rows_, o_.context)),
                   ops::Phase::kPrefill);
    const double links = links_s(chunk, keys.scored / std::max(1.0, csa_layers()));
    const double total = steps * (time.s + launches_s() + links);
    out_.prefill_tokens_per_s = sum / total;
    line("prefill",
         fmt::format("{} tokens in {} step(s): weights {:.3f} + attention {:.3f} + launches "
                     "{:.3f} + links {:.3f} ms a step",
                     o_.context, steps, weights_s * 1e3, (time.s - weights_s) * 1e3,
                     launches_s() * 1e3, links * 1e3),
         fmt::format("{:.0f} tokens/s", out_.prefill_tokens_per_s));
  }

  double csa_layers() const { return static_cast<double>(layer_counts(c_).csa); }

  const ModelConfig& c_;
  const WeightGroups& w_;
  const PlanOptions& o_;
  const Machine& m_;
  const int n_;
  const RowSizes rows_;
  SpeedPlan out_;
};

}  // namespace

double distinct_experts(int experts, int top, double tokens) {
  return experts * (1.0 - std::pow(1.0 - static_cast<double>(top) / experts, tokens));
}

double step_weight_bytes(const WeightGroups& weights, const ModelConfig& config, double tokens) {
  double bytes = 0.0;
  for (const WeightGroup& g : weights.groups)
    if (!g.draft) bytes += group_bytes(g, config, tokens);
  return bytes;
}

SpeedPlan plan_speed(const ModelConfig& config, const WeightGroups& weights,
                     const PlanOptions& options) {
  return Speed(config, weights, options).run();
}

}  // namespace nibble::plan
