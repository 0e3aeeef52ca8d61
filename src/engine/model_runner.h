// A loaded model and its memory: runs one forward step of the target and of the drafter.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "model/deepseek_v4/model.h"
#include "nibble/engine.h"

namespace nibble::engine {

// One thread at a time (the scheduler's).
class ModelRunner {
 public:
  // Reads and checks the checkpoint, allocates caches for `slots` sequences, and runs one forward
  // pass. Throws Error or CheckpointError. progress may be null.
  static std::unique_ptr<ModelRunner> load(const EngineOptions& options, int slots,
                                           const std::function<void(double)>& progress);

  const ModelInfo& info() const { return info_; }
  bool drafts() const { return info_.drafting; }
  int max_step_rows() const { return max_step_rows_; }
  model::DeepseekV4& model() { return *model_; }
  ops::Backend& backend() { return *backend_; }  // for what looks into a run
  const kv::Cache& cache() const { return *cache_; }

  // Target step; then logits of any of its rows, on the host, valid until the next call of this
  // object.
  void forward(const ops::Batch& batch);
  std::span<const float> logits(std::int64_t begin, std::int64_t count);  // [count, V]

  // Drafter step over rows [begin, begin + batch.rows()) of the last target step: batch.ids are the
  // tokens that follow them. Then logits of its rows, as above.
  void forward_drafter(const ops::Batch& batch, std::int64_t begin);
  std::span<const float> drafter_logits(std::int64_t begin, std::int64_t count);  // [count, V]

 private:
  ModelRunner() = default;
  std::span<const float> to_host(const tensor::View& logits);

  ModelInfo info_;
  int max_step_rows_ = 0;
  std::unique_ptr<ThreadPool> threads_;
  std::unique_ptr<ops::Backend> backend_;
  std::unique_ptr<model::DeepseekV4> model_;
  std::unique_ptr<kv::Cache> cache_;
  std::vector<float> host_logits_;
};

}  // namespace nibble::engine
