// The forward pass of DeepSeek-V4: the paper's diagram, calling ops.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "kv/cache.h"
#include "model/deepseek_v4/residual_streams.h"
#include "model/deepseek_v4/weights.h"
#include "model/deepseek_v4/workspace.h"

namespace nibble::model {

// Looks at intermediate values: golden comparisons and teacher-forced tests. Views are valid during
// the call.
struct Taps {
  std::function<void(int layer, const tensor::View& streams)> streams;  // [n, hc, D] after a layer
  std::function<void(int layer, const tensor::View& selected)>
      selected;  // I32 [n, topk], CSA layers
  std::function<void(int layer, const tensor::View& experts, const tensor::View& weights)>
      routed;  // [n, k]
  // [starts, depth, V] of a DSpark draft, the Markov correction included.
  std::function<void(std::span<const float> logits)> proposed;

  bool any() const { return streams || selected || routed || proposed; }
};

// Where a DSpark block begins: `next` is the token at position + 1, and everything up to `position` was observed.
struct DsparkStart {
  std::int32_t slot = 0;
  std::int32_t position = 0;
  TokenId next = 0;
};

// Candidate i of a start stands for position + 2 + i.
struct DsparkDraft {
  std::vector<TokenId> tokens;  // [starts, depth] greedy
  std::vector<float>
      confidence;  // [starts, depth] raw; its sigmoid estimates the chance to be accepted
};

// What a DSpark drafter needs besides the workspace.
struct DsparkBuffers {
  DsparkBuffers(ops::Backend& backend, const ModelConfig& config, const DsparkWeights& weights,
                std::int64_t max_rows);

  tensor::View features;          // [n, target layers * D] of the last forward()
  tensor::View markov;            // [blocks, 1, rank]
  std::vector<float> confidence;  // [D + rank] on the host
};

// One step at a time, on the engine's thread. Layers of the cache from num_layers on belong to the drafter: one
// for the MTP block, or one for each DSpark stage.
class DeepseekV4 {
 public:
  // Borrows the backend. max_rows bounds a step's rows. Weights are the backend's.
  DeepseekV4(ops::Backend& backend, const ModelConfig& config, ModelWeights weights,
             std::int64_t max_rows);

  const ModelConfig& config() const { return config_; }
  const ModelWeights& weights() const { return weights_; }
  bool has_mtp() const { return weights_.mtp.has_value(); }
  bool has_dspark() const { return weights_.dspark.has_value(); }

  // Runs the batch through all layers and writes its rows into the cache. Positions continue each
  // slot's sequence, or go back by up to ops::kDraftSlack tokens. Afterwards streams() holds the rows'
  // residual streams (before the head), until the next forward().
  void forward(const ops::Batch& batch, const kv::Cache& cache, const Taps& taps = {});
  tensor::View streams(std::int64_t rows) const { return ws_.streams.first(rows); }

  // Logits [count, V] of rows [begin, begin + count) of the last forward(). Valid until the next
  // call of logits.
  tensor::View logits(std::int64_t begin, std::int64_t count);
  // The same of any rows [m], in their order.
  tensor::View logits(std::span<const std::int32_t> rows);

  // The MTP block (deepseek-v4.md 5.1): batch.ids are the tokens that FOLLOW the rows' positions,
  // `streams` [n, hc, D] the residual streams at those positions (the target's, or mtp_streams()
  // for one token further). Afterwards mtp_streams() holds the block's own streams, all of the batch or those of some rows
  // [m, hc, D]. The latter until rows are asked for again, or until the forward_mtp() that takes them.
  void forward_mtp(const ops::Batch& batch, const kv::Cache& cache, const tensor::View& streams,
                   const Taps& taps = {});
  tensor::View mtp_streams(std::int64_t rows) const { return ws_.mtp_streams.first(rows); }
  tensor::View mtp_streams(std::span<const std::int32_t> rows);
  // Logits [m, V] from streams [m, hc, D] of the block. Valid as logits() are.
  tensor::View mtp_logits(const tensor::View& streams);

  // The most likely token of each row of logits [m, V], m <= max_rows: I32 [m], ops::kNoBest where there is none. Valid until
  // the next call of best().
  tensor::View best(const tensor::View& logits);

  // The DSpark drafter (deepseek-v4.md 5.2). It sees the rows of the last forward(), whose batch this is (ids are not looked at), then
  // proposes `depth` tokens, up to the config's block size, after each start; starts have different slots, and their
  // blocks fit max_rows together. A draft's own rows
  // lie behind what was observed, and are overwritten by what is observed there.
  void observe_dspark(const ops::Batch& batch, const kv::Cache& cache);
  DsparkDraft draft_dspark(std::span<const DsparkStart> starts, int depth, const kv::Cache& cache,
                           const Taps& taps = {});

 private:
  // Calls ops with the batch, padded perhaps (ops::Backend::run_pass); as it is where somebody looks into the pass.
  void run(const ops::PassKey& key, const ops::Batch& batch, const Taps& taps,
           const ops::PassOps& ops);
  void target_pass(const ops::Batch& batch, const kv::Cache& cache, const Taps& taps);
  void mtp_pass(const ops::Batch& batch, const kv::Cache& cache, const tensor::View& target,
                const Taps& taps);
  ResidualStreams residual(const tensor::View& streams, std::int64_t rows);
  void block(const BlockWeights& w, int layer, const ops::Batch& batch, const kv::LayerCache& cache,
             ResidualStreams& streams, const Taps& taps);
  tensor::View attention(const AttentionWeights& w, int layer, const ops::Batch& batch,
                         const kv::LayerCache& cache, const tensor::View& x, const Taps& taps);
  void compress(const CompressorWeights& w, int ratio, const ops::Batch& batch,
                const tensor::View& x, const tensor::View& values, const tensor::View& gates,
                const ops::StatePool& state, const ops::PagedPool& entries);
  tensor::View select(const IndexerWeights& w, const ops::Batch& batch, const kv::LayerCache& cache,
                      const tensor::View& x, const tensor::View& qr);
  tensor::View moe(const MoeWeights& w, int layer, const ops::Batch& batch, const tensor::View& x,
                   const Taps& taps);
  tensor::View gather(const tensor::View& streams, std::span<const std::int32_t> rows);
  void tap_dspark(int layer, ResidualStreams& streams);
  tensor::View dspark_blocks(std::span<const DsparkStart> starts, int depth, const kv::Cache& cache,
                             const Taps& taps);
  DsparkDraft propose(std::span<const DsparkStart> starts, int depth, const tensor::View& streams,
                      const Taps& taps);
  tensor::View head(const HeadWeights& w, const ops::Matrix& lm_head, const tensor::View& streams);

  ops::Backend& backend_;
  ModelConfig config_;
  ModelWeights weights_;
  ops::HcConstants hc_;
  ops::RopeTable rope_, compress_rope_;
  Workspace ws_;
  std::optional<DsparkBuffers> dspark_;
};

}  // namespace nibble::model
