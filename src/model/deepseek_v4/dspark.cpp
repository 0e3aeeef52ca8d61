// The DSpark drafter (deepseek-v4.md 5.2).
#include <algorithm>

#include "model/deepseek_v4/model.h"

namespace nibble::model {
namespace {

// Elements of a F32 view, on the host.
void fetch(ops::Backend& backend, const tensor::View& view, std::vector<float>& out) {
  out.resize(static_cast<std::size_t>(view.shape.elements()));
  backend.download(view, std::as_writable_bytes(std::span(out)));
}

float dot(const float* a, const float* b, std::int64_t n) {
  double sum = 0.0;
  for (std::int64_t i = 0; i < n; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return static_cast<float>(sum);
}

}  // namespace

DsparkBuffers::DsparkBuffers(ops::Backend& backend, const ModelConfig& c, const DsparkWeights& w,
                             std::int64_t max_rows) {
  const auto taps = static_cast<std::int64_t>(c.dspark->target_layers.size());
  const std::int64_t blocks = max_rows / c.dspark->block_size;
  features = backend.allocate(tensor::DType::kF32, {max_rows, taps * c.hidden_size});
  markov = backend.allocate(tensor::DType::kF32, {blocks, 1, c.dspark->markov_rank});
  fetch(backend, w.confidence, confidence);
}

// The part of `features` that this layer gives, if it is a target layer.
void DeepseekV4::tap_dspark(int layer, ResidualStreams& streams) {
  const std::vector<int>& targets = config_.dspark->target_layers;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    if (targets[i] != layer) continue;
    const tensor::View& x = streams.settle();
    backend_.stream_mean({x, dspark_->features.first(x.shape[0]),
                          static_cast<std::int64_t>(i) * config_.hidden_size});
  }
}

void DeepseekV4::observe_dspark(const ops::Batch& batch, const kv::Cache& cache) {
  NIBBLE_CHECK(has_dspark(), "a model without a DSpark drafter");
  backend_.begin_step(batch);
  const DsparkWeights& w = *weights_.dspark;
  const std::int64_t n = batch.rows();
  const tensor::View g = ws_.embedded.first(n), kv = ws_.kv.first(n);
  backend_.linear(
      {.x = dspark_->features.first(n), .weight = w.main_proj, .y = g, .quantize_input = true});
  backend_.rms_norm({g, w.main_norm, config_.rms_eps, g});
  for (std::size_t stage = 0; stage < w.stages.size(); ++stage) {
    const AttentionWeights& a = w.stages[stage].attn;
    const ops::RowPool& ring = cache.layer(config_.num_layers + static_cast<int>(stage)).window;
    backend_.linear({.x = g, .weight = a.wkv, .y = kv, .quantize_input = true});
    backend_.window_insert({batch, kv, a.kv_norm, config_.rms_eps, rope_, ws_.window_rows, ring});
    backend_.window_commit({batch, ws_.window_rows, ring});
  }
}

DsparkDraft DeepseekV4::draft_dspark(std::span<const DsparkStart> starts, int depth,
                                     const kv::Cache& cache, const Taps& taps) {
  NIBBLE_CHECK(has_dspark() && depth >= 1 && depth <= config_.dspark->block_size, "depth {}",
               depth);
  if (starts.empty()) return {};
  return propose(starts, depth, dspark_blocks(starts, depth, cache, taps), taps);
}

// The stages over one block a start; the streams [starts * depth, hc, D] of each block's first `depth` rows.
tensor::View DeepseekV4::dspark_blocks(std::span<const DsparkStart> starts, int depth,
                                       const kv::Cache& cache, const Taps& taps) {
  const auto size = static_cast<std::size_t>(config_.dspark->block_size);
  std::vector<TokenId> ids(starts.size() * size, config_.dspark->noise_token);
  std::vector<ops::Segment> segments;
  std::vector<std::int32_t> rows;
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const auto first = static_cast<std::int32_t>(i * size);
    ids[i * size] = starts[i].next;
    segments.push_back(
        {first, static_cast<std::int32_t>(size), starts[i].slot, starts[i].position + 1});
    for (std::int32_t j = 0; j < depth; ++j) rows.push_back(first + j);
  }
  const ops::Batch batch{ids, segments};
  backend_.begin_step(batch);
  const tensor::View x = ws_.mtp_streams.first(batch.rows());
  backend_.embed({ids, weights_.embed, x});
  ResidualStreams streams = residual(x, batch.rows());
  const std::vector<BlockWeights>& stages = weights_.dspark->stages;
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    const int layer = config_.num_layers + static_cast<int>(stage);
    block(stages[stage], layer, batch, cache.layer(layer), streams, taps);
  }
  streams.settle();
  return gather(ws_.mtp_streams, rows);
}

// Candidates one after the other, each correcting the logits of the next; all sequences together.
DsparkDraft DeepseekV4::propose(std::span<const DsparkStart> starts, int depth,
                                const tensor::View& streams, const Taps& taps) {
  const DsparkWeights& w = *weights_.dspark;
  const std::int64_t n = streams.shape[0], d = config_.hidden_size, vocab = config_.vocab_size;
  const std::int64_t count = n / depth, rank = config_.dspark->markov_rank;
  const tensor::View h = ws_.head.first(n), x = ws_.x.first(n), logits = ws_.logits.first(n);
  backend_.hc_head({streams, w.head.fn, w.head.base, w.head.scale, {}, hc_, h});
  std::vector<float> hidden, base, rows, correction;
  fetch(backend_, h, hidden);
  backend_.rms_norm({h, w.head.norm, config_.rms_eps, x});
  backend_.linear({.x = x, .weight = weights_.lm_head, .y = logits, .round_output = false});
  fetch(backend_, logits, base);

  std::vector<TokenId> previous;
  for (const DsparkStart& start : starts) previous.push_back(start.next);
  const tensor::View markov = dspark_->markov.first(count);
  DsparkDraft draft;
  draft.tokens.resize(static_cast<std::size_t>(n));
  draft.confidence.resize(static_cast<std::size_t>(n));
  for (int i = 0; i < depth; ++i) {
    backend_.embed({previous, w.markov_w1, markov});
    backend_.linear({.x = markov.reshape({count, rank}),
                     .weight = w.markov_w2,
                     .y = ws_.logits.first(count),
                     .round_output = false});
    fetch(backend_, markov, rows);
    fetch(backend_, ws_.logits.first(count), correction);
    for (std::int64_t s = 0; s < count; ++s) {
      const std::int64_t row = s * depth + i;
      float* corrected = base.data() + row * vocab;
      for (std::int64_t v = 0; v < vocab; ++v) corrected[v] += correction[s * vocab + v];
      const auto at = static_cast<std::size_t>(row);
      draft.tokens[at] =
          static_cast<TokenId>(std::max_element(corrected, corrected + vocab) - corrected);
      draft.confidence[at] = dot(dspark_->confidence.data(), hidden.data() + row * d, d) +
                             dot(dspark_->confidence.data() + d, rows.data() + s * rank, rank);
      previous[static_cast<std::size_t>(s)] = draft.tokens[at];
    }
  }
  if (taps.proposed) taps.proposed(base);
  return draft;
}

}  // namespace nibble::model
