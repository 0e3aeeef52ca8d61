#include "engine/model_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/sha256.h"
#include "checkpoint/weight_binder.h"
#include "engine/backend_choice.h"
#include "nibble/status.h"

namespace nibble::engine {
namespace {

constexpr int kMaxDraftRows = 8;  // rows a verification may bring beyond the prefill chunk's bound

const char* kv_name(ops::RowFormat format) {
  switch (format) {
    case ops::RowFormat::kF32:
      return "fp32";
    case ops::RowFormat::kBf16:
      return "bf16";
    default:
      return "fp8";
  }
}

std::string fingerprint(const ModelInfo& info) {
  // Everything that may change an answer's bits: the model's name and size, the kernels, the
  // rounding.
  std::string text =
      fmt::format("{}|{}|{}|{}", info.name, info.weight_bytes, info.activations, info.kv_dtype);
  for (const KernelChoice& row : info.kernels)
    text += fmt::format("|{}:{}:{}", row.layer_kind, row.format, row.kernel);
  return "fp_" + sha256_hex(std::as_bytes(std::span(text))).substr(0, 12);
}

}  // namespace

std::unique_ptr<ModelRunner> ModelRunner::load(const EngineOptions& options, int slots,
                                               const std::function<void(double)>& progress) {
  const auto report = [&](double fraction) {
    if (progress) progress(fraction);
  };
  report(0.0);
  const std::filesystem::path dir(options.model_dir);
  const checkpoint::Checkpoint files = checkpoint::Checkpoint::open(options.model_dir);
  const model::ModelConfig config = model::ModelConfig::load(files.folder());
  std::unique_ptr<ModelRunner> runner(new ModelRunner);
  ModelInfo& info = runner->info_;
  info.max_model_len = config.max_positions;
  if (options.max_model_len > config.max_positions)
    throw Error(ExitCode::kUsage,
                fmt::format("--max-model-len {}: {} allows at most {}", options.max_model_len,
                            files.config_path(), config.max_positions));
  if (options.max_model_len > 0) info.max_model_len = options.max_model_len;
  runner->max_step_rows_ = std::max(options.prefill_chunk, kMaxDraftRows);

  const DeviceKind device = resolve_device(options.device);
  const ops::Numerics numerics = numerics_for(options, device, config);
  runner->threads_ =
      std::make_unique<ThreadPool>(options.threads > 0 ? options.threads : available_cpus());
  runner->backend_ = make_backend(device, numerics, *runner->threads_);

  checkpoint::WeightBinder binder(files);
  report(0.05);
  model::ModelWeights weights = model::load_weights(binder, config, *runner->backend_);
  report(0.9);

  info.name = std::filesystem::weakly_canonical(dir).filename().string();
  info.vocab_size = config.vocab_size;
  info.bos_token = config.bos_token;
  info.eos_token = config.eos_token;
  info.weight_bytes = weights.bytes;
  info.device = runner->backend_->description();
  info.activations = numerics.release ? "release" : "exact";
  info.kv_dtype = kv_name(numerics.kv_rows);
  info.drafting = options.draft && weights.mtp.has_value();
  info.kernels = weights.kernels;
  info.notes = weights.notes;
  if (device == DeviceKind::kCuda)
    info.notes.push_back(
        "the CUDA backend has plain kernels only so far, none on tensor cores: expect a small part "
        "of this GPU's speed");
  for (const auto& notes : {files.notes(), binder.notes()})
    info.notes.insert(info.notes.end(), notes.begin(), notes.end());
  info.fingerprint = fingerprint(info);

  kv::CacheSpec spec;
  spec.slots = slots;
  spec.max_len = info.max_model_len;
  spec.max_step_rows = runner->max_step_rows_;
  spec.window = config.sliding_window;
  spec.head_dim = config.head_dim;
  spec.index_head_dim = config.index_head_dim;
  spec.ratios.assign(config.compress_ratios.begin(),
                     config.compress_ratios.begin() + config.num_layers);
  if (weights.mtp) spec.ratios.push_back(0);
  runner->cache_ = std::make_unique<kv::Cache>(*runner->backend_, spec);
  info.cache_bytes = runner->cache_->bytes();
  info.max_num_seqs = slots;
  runner->model_ =
      std::make_unique<model::DeepseekV4>(*runner->backend_, config, std::move(weights),
                                          static_cast<std::int64_t>(runner->max_step_rows_) +
                                              std::int64_t{kMaxDraftRows} * (slots - 1));
  // Ready means that a real forward pass has run.
  const TokenId ids[] = {config.bos_token};
  const ops::Segment segments[] = {{0, 1, 0, 0}};
  runner->forward({ids, segments});
  const std::span<const float> logits = runner->logits(0, 1);
  if (std::any_of(logits.begin(), logits.end(), [](float x) { return !(x == x); }))
    throw CheckpointError(fmt::format("{}: the first forward pass gives NaN", dir.string()));
  report(1.0);
  return runner;
}

void ModelRunner::forward(const ops::Batch& batch) {
  model_->forward(batch, *cache_);
}

std::span<const float> ModelRunner::to_host(const tensor::View& logits) {
  host_logits_.resize(static_cast<std::size_t>(logits.shape.elements()));
  backend_->download(logits, std::as_writable_bytes(std::span(host_logits_)));
  return host_logits_;
}

std::span<const float> ModelRunner::logits(std::int64_t begin, std::int64_t count) {
  return to_host(model_->logits(begin, count));
}

void ModelRunner::forward_drafter(const ops::Batch& batch, std::int64_t begin) {
  model_->forward_mtp(batch, *cache_,
                      model_->streams(begin + batch.rows()).rows(begin, batch.rows()));
}

std::span<const float> ModelRunner::drafter_logits(std::int64_t begin, std::int64_t count) {
  return to_host(model_->mtp_logits(begin, count));
}

}  // namespace nibble::engine
