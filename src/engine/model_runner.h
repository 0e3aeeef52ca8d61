// A loaded model and its memory: runs steps of the target and of the drafter, and draws from them on the host.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "engine/step_model.h"
#include "model/deepseek_v4/model.h"

namespace nibble::engine {

// One thread at a time (the scheduler's).
class ModelRunner : public StepModel {
 public:
  // Reads and checks the checkpoint, allocates caches for `slots` sequences, and runs one forward
  // pass. Throws Error or CheckpointError. progress may be null.
  static std::unique_ptr<ModelRunner> load(const EngineOptions& options, int slots,
                                           const std::function<void(double)>& progress);

  const ModelInfo& info() const override { return info_; }
  const CacheLimits& limits() const override { return limits_; }
  void forward(const ops::Batch& batch) override;
  std::vector<Result<GeneratedToken>> draw(std::span<const DrawRow> rows) override;
  std::vector<GeneratedToken> score(std::int32_t begin, std::span<const TokenId> tokens,
                                    int alternatives) override;
  std::vector<TokenId> draft(const ops::Batch& batch, std::span<const DraftRow> rows,
                             int depth) override;
  std::vector<std::byte> save(int slot, int position, std::int32_t page) override;
  void restore(int slot, int position, std::int32_t page,
               std::span<const std::byte> bytes) override;
  std::int64_t saved_bytes(int position) const override;
  std::vector<std::byte> save_page(std::int32_t page) override;
  void restore_page(std::int32_t page, std::span<const std::byte> bytes) override;
  std::int64_t page_bytes() const override;

  // For what looks into a run.
  model::DeepseekV4& model() { return *model_; }
  ops::Backend& backend() { return *backend_; }
  kv::Cache& cache() { return *cache_; }
  // Logits [count, V] of rows of the last forward(), on the host, valid until the next call of this object.
  std::span<const float> logits(std::int64_t begin, std::int64_t count);

 private:
  ModelRunner() = default;
  std::span<const float> to_host(const tensor::View& logits);
  std::vector<TokenId> draft_block(const ops::Batch& batch, std::span<const DraftRow> rows,
                                   int depth);
  // The most likely token of each row, ops::kNoBest where there is none; only ids cross to the host.
  std::vector<TokenId> best(const tensor::View& logits);

  ModelInfo info_;
  CacheLimits limits_;
  std::unique_ptr<ThreadPool> threads_;
  std::unique_ptr<ops::Backend> backend_;
  std::unique_ptr<model::DeepseekV4> model_;
  std::unique_ptr<kv::Cache> cache_;
  std::vector<float> host_logits_;
};

}  // namespace nibble::engine
