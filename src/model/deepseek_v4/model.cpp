#include "model/deepseek_v4/model.h"

#include <cmath>
#include <functional>

#include "model/rope_table.h"

namespace nibble::model {
namespace {

ops::RopeTable upload_rope(ops::Backend& backend, const RopeConfig& rope, int rope_dim) {
  const std::vector<float> table = inverse_frequencies(rope, rope_dim);
  const int pairs = static_cast<int>(table.size());
  return {backend.upload(std::span<const float>(table), {pairs}).f32(), pairs};
}

}  // namespace

DeepseekV4::DeepseekV4(ops::Backend& backend, const ModelConfig& config, ModelWeights weights,
                       std::int64_t max_rows)
    : backend_(backend),
      config_(config),
      weights_(std::move(weights)),
      hc_{config.rms_eps, config.hc_eps, config.hc_sinkhorn_iters},
      rope_(upload_rope(backend, config.rope, config.rope_head_dim)),
      compress_rope_(upload_rope(backend, config.compress_rope, config.rope_head_dim)),
      ws_(backend, config, max_rows) {
  if (weights_.dspark) dspark_.emplace(backend, config_, *weights_.dspark, max_rows);
}

ResidualStreams DeepseekV4::residual(const tensor::View& streams, std::int64_t rows) {
  NIBBLE_CHECK(rows <= ws_.max_rows, "{} rows in a step of at most {}", rows, ws_.max_rows);
  return {backend_, hc_, streams, ws_.post.first(rows), ws_.comb.first(rows), ws_.x.first(rows)};
}

void DeepseekV4::run(const ops::PassKey& key, const ops::Batch& batch, const Taps& taps,
                     const ops::PassOps& ops) {
  if (!taps.any()) return backend_.run_pass(key, batch, ops);
  backend_.begin_step(batch);
  ops(batch);
}

void DeepseekV4::forward(const ops::Batch& batch, const kv::Cache& cache, const Taps& taps) {
  const auto pass = [&](const ops::Batch& rows) { target_pass(rows, cache, taps); };
  // By reference: no allocation.
  run({this, cache.layer(0).window.data, nullptr, ws_.max_rows}, batch, taps, std::ref(pass));
}

void DeepseekV4::target_pass(const ops::Batch& batch, const kv::Cache& cache, const Taps& taps) {
  const tensor::View rows = ws_.streams.first(batch.rows());
  backend_.embed({batch.ids, weights_.embed, rows});
  ResidualStreams streams = residual(rows, batch.rows());
  for (int l = 0; l < config_.num_layers; ++l) {
    block(weights_.layers[static_cast<std::size_t>(l)], l, batch, cache.layer(l), streams, taps);
    if (dspark_) tap_dspark(l, streams);
  }
  streams.settle();
}

void DeepseekV4::block(const BlockWeights& w, int layer, const ops::Batch& batch,
                       const kv::LayerCache& cache, ResidualStreams& streams, const Taps& taps) {
  streams.leave(
      attention(w.attn, layer, batch, cache, streams.enter(w.attn_site, w.attn_norm), taps));
  streams.leave(moe(w.ffn, layer, batch, streams.enter(w.ffn_site, w.ffn_norm), taps));
  if (taps.streams) taps.streams(layer, streams.settle());
}

tensor::View DeepseekV4::attention(const AttentionWeights& w, int layer, const ops::Batch& batch,
                                   const kv::LayerCache& cache, const tensor::View& x,
                                   const Taps& taps) {
  const std::int64_t n = batch.rows(), heads = config_.num_heads, hd = config_.head_dim;
  const ops::RopeTable& rope = w.ratio == 0 ? rope_ : compress_rope_;
  const tensor::View qr = ws_.qr.first(n), q = ws_.q.first(n), kv = ws_.kv.first(n),
                     o = ws_.o.first(n);
  const tensor::View u = ws_.u.first(n), out = ws_.out.first(n);

  backend_.linear({.x = x, .weight = w.wq_a, .y = qr, .quantize_input = true});
  backend_.rms_norm({qr, w.q_norm, config_.rms_eps, qr});
  backend_.linear(
      {.x = qr, .weight = w.wq_b, .y = q.reshape({n, heads * hd}), .quantize_input = true});
  backend_.query_norm_rope({batch, q, config_.rms_eps, rope});
  backend_.linear({.x = x, .weight = w.wkv, .y = kv, .quantize_input = true});
  backend_.window_insert(
      {batch, kv, w.kv_norm, config_.rms_eps, rope, ws_.window_rows, cache.window});

  tensor::View selected;
  if (w.compressor)
    compress(*w.compressor, w.ratio, batch, x, ws_.comp_values, ws_.comp_gates, cache.state,
             cache.entries);
  if (w.indexer) {
    selected = select(*w.indexer, batch, cache, x, qr);
    if (taps.selected) taps.selected(layer, selected);
  }

  backend_.sparse_attention({.batch = batch,
                             .q = q,
                             .step = ws_.window_rows,
                             .window_rows = cache.window,
                             .window = config_.sliding_window,
                             .entries = cache.entries,
                             .ratio = w.ratio,
                             .selected = selected,
                             .sink = w.sink,
                             .scale = 1.0f / std::sqrt(static_cast<float>(hd)),
                             .rope = rope,
                             .o = o,
                             .whole_segment = w.whole_segment});
  backend_.window_commit({batch, ws_.window_rows, cache.window});
  backend_.grouped_linear({o.reshape({n, heads * hd}), w.wo_a, config_.o_groups, u});
  backend_.linear({.x = u, .weight = w.wo_b, .y = out, .quantize_input = true});
  return out;
}

void DeepseekV4::compress(const CompressorWeights& w, int ratio, const ops::Batch& batch,
                          const tensor::View& x, const tensor::View& values,
                          const tensor::View& gates, const ops::StatePool& state,
                          const ops::PagedPool& entries) {
  // The buffers are sized for the overlapping kind; the other one stores half as many channels a
  // token.
  const std::int64_t n = batch.rows(), width = state.width;
  const tensor::View c{values.data, values.dtype, {n, width}};
  const tensor::View z{gates.data, gates.dtype, {n, width}};
  backend_.linear({.x = x, .weight = w.wkv, .y = c, .round_output = false});
  backend_.linear({.x = x, .weight = w.wgate, .y = z, .round_output = false});
  backend_.compress({.batch = batch,
                     .values = c,
                     .gates = z,
                     .ape = w.ape,
                     .norm = w.norm,
                     .eps = config_.rms_eps,
                     .rope = compress_rope_,
                     .ratio = ratio,
                     .overlap = width == 2 * entries.width,
                     .state = state,
                     .entries = entries});
}

tensor::View DeepseekV4::select(const IndexerWeights& w, const ops::Batch& batch,
                                const kv::LayerCache& cache, const tensor::View& x,
                                const tensor::View& qr) {
  const std::int64_t n = batch.rows();
  const std::int64_t heads = config_.index_heads, di = config_.index_head_dim;
  const tensor::View q = ws_.index_q.first(n), weights = ws_.index_weights.first(n),
                     selected = ws_.selected.first(n);
  compress(w.compressor, 4, batch, x, ws_.index_values, ws_.index_gates, cache.index_state,
           cache.index_keys);
  backend_.linear(
      {.x = qr, .weight = w.wq_b, .y = q.reshape({n, heads * di}), .quantize_input = true});
  backend_.linear({.x = x, .weight = w.weights_proj, .y = weights});
  backend_.index_select({.batch = batch,
                         .q = q,
                         .weights = weights,
                         .rope = compress_rope_,
                         .ratio = 4,
                         .keys = cache.index_keys,
                         .topk = config_.index_topk,
                         .selected = selected});
  return selected;
}

tensor::View DeepseekV4::moe(const MoeWeights& w, int layer, const ops::Batch& batch,
                             const tensor::View& x, const Taps& taps) {
  const std::int64_t n = batch.rows();
  const tensor::View experts = ws_.experts.first(n), weights = ws_.expert_weights.first(n),
                     out = ws_.out.first(n);
  backend_.route(
      {x, w.gate, w.bias, w.hash_table, batch.ids, config_.routed_scaling, experts, weights});
  if (taps.routed) taps.routed(layer, experts, weights);
  backend_.routed_experts({x, experts, weights, w.routed, w.shared, config_.swiglu_limit, out});
  return out;
}

tensor::View DeepseekV4::head(const HeadWeights& w, const ops::Matrix& lm_head,
                              const tensor::View& streams) {
  const std::int64_t n = streams.shape[0];
  const tensor::View h = ws_.head.first(n), logits = ws_.logits.first(n);
  backend_.hc_head({streams, w.fn, w.base, w.scale, w.norm, hc_, h});
  backend_.linear({.x = h, .weight = lm_head, .y = logits, .round_output = false});
  return logits;
}

tensor::View DeepseekV4::logits(std::int64_t begin, std::int64_t count) {
  return head(weights_.head, weights_.lm_head, ws_.streams.rows(begin, count));
}

tensor::View DeepseekV4::logits(std::span<const std::int32_t> rows) {
  return head(weights_.head, weights_.lm_head, gather(ws_.streams, rows));
}

tensor::View DeepseekV4::gather(const tensor::View& streams, std::span<const std::int32_t> rows) {
  const tensor::View out = ws_.other_streams.first(static_cast<std::int64_t>(rows.size()));
  backend_.gather_rows({streams, rows, out});
  return out;
}

tensor::View DeepseekV4::best(const tensor::View& logits) {
  const tensor::View ids = ws_.best.first(logits.shape[0]);
  backend_.argmax_rows({logits, ids});
  return ids;
}

void DeepseekV4::forward_mtp(const ops::Batch& batch, const kv::Cache& cache,
                             const tensor::View& target, const Taps& taps) {
  NIBBLE_CHECK(weights_.mtp.has_value(), "a model without an MTP block");
  check_shape(target, {batch.rows(), config_.hc_mult, config_.hidden_size}, "mtp.streams");
  const auto pass = [&](const ops::Batch& rows) { mtp_pass(rows, cache, target, taps); };
  // Whole buffers of the workspace have room for padding rows, pieces of them may have none.
  const bool whole = target.data == ws_.streams.data || target.data == ws_.mtp_streams.data ||
                     target.data == ws_.other_streams.data;
  run({this, cache.layer(0).window.data, target.data, whole ? ws_.max_rows : batch.rows()}, batch,
      taps, std::ref(pass));
}

void DeepseekV4::mtp_pass(const ops::Batch& batch, const kv::Cache& cache,
                          const tensor::View& target, const Taps& taps) {
  const MtpWeights& w = *weights_.mtp;
  const std::int64_t n = batch.rows(), hc = config_.hc_mult, d = config_.hidden_size;
  const tensor::View streams = ws_.mtp_streams.first(n), e = ws_.embedded.first(n),
                     x = ws_.x.first(n);
  const tensor::View flat = streams.reshape({n * hc, d}),
                     normed = ws_.other_streams.first(n).reshape({n * hc, d});
  // E = e_proj norm(embed[u]); Y[i] = E + h_proj norm(X[i])
  backend_.embed({batch.ids, w.embed.empty() ? weights_.embed : w.embed, x.reshape({n, 1, d})});
  backend_.rms_norm({x, w.enorm, config_.rms_eps, x});
  backend_.linear({.x = x, .weight = w.e_proj, .y = e, .quantize_input = true});
  const tensor::View before{target.data, target.dtype, {n * hc, d}};  // padding rows too
  backend_.rms_norm({before, w.hnorm, config_.rms_eps, normed});
  backend_.linear({.x = normed, .weight = w.h_proj, .y = flat, .quantize_input = true});
  backend_.stream_add({e, streams});
  ResidualStreams residual_streams = residual(streams, n);
  block(w.block, config_.num_layers, batch, cache.layer(config_.num_layers), residual_streams,
        taps);
  residual_streams.settle();
}

tensor::View DeepseekV4::mtp_streams(std::span<const std::int32_t> rows) {
  return gather(ws_.mtp_streams, rows);
}

tensor::View DeepseekV4::mtp_logits(const tensor::View& streams) {
  const MtpWeights& w = *weights_.mtp;
  return head(w.head, w.lm_head.empty() ? weights_.lm_head : w.lm_head, streams);
}

}  // namespace nibble::model
