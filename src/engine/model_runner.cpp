#include "engine/model_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <optional>
#include <utility>

#include "base/sha256.h"
#include "checkpoint/weight_binder.h"
#include "engine/backend_choice.h"
#include "nibble/status.h"
#include "sample/sampler.h"

namespace nibble::engine {
namespace {

constexpr int kMaxDraft = 4;  // tokens that the MTP block proposes at once
// Rows that a sequence which decodes may bring beyond the prefill chunk's bound.
constexpr int kMaxDraftRows = 8;
static_assert(kMaxDraft <= ops::kDraftSlack && kMaxDraft < kMaxDraftRows &&
              model::kMaxDsparkBlock <= ops::kDraftSlack && model::kMaxDsparkBlock < kMaxDraftRows);

int page_count(std::int64_t tokens) {
  return static_cast<int>((tokens + ops::kPageTokens - 1) / ops::kPageTokens);
}

// Tokens a sequence may have.
int model_len(const EngineOptions& options, const model::ModelConfig& config,
              const std::string& config_path) {
  if (options.max_model_len > config.max_positions)
    throw Error(ExitCode::kUsage,
                fmt::format("--max-model-len {}: {} allows at most {}", options.max_model_len,
                            config_path, config.max_positions));
  if (options.max_total_tokens == 0)
    return options.max_model_len > 0 ? options.max_model_len : config.max_positions;
  if (options.max_model_len > options.max_total_tokens)
    throw Error(ExitCode::kUsage,
                fmt::format("--max-total-tokens {}: a sequence of --max-model-len {} does not fit",
                            options.max_total_tokens, options.max_model_len));
  return options.max_model_len > 0 ? options.max_model_len
                                   : std::min(config.max_positions, options.max_total_tokens);
}

// Layers of the cache that belong to the drafter.
int drafter_layers(const model::ModelWeights& weights) {
  if (weights.dspark) return static_cast<int>(weights.dspark->stages.size());
  return weights.mtp ? 1 : 0;
}

kv::CacheSpec cache_spec(const model::ModelConfig& config, const CacheLimits& limits,
                         int drafter_layers) {
  kv::CacheSpec spec;
  spec.slots = limits.slots;
  spec.pages = limits.pages;
  spec.window = config.sliding_window;
  spec.head_dim = config.head_dim;
  spec.index_head_dim = config.index_head_dim;
  spec.ratios.assign(config.compress_ratios.begin(),
                     config.compress_ratios.begin() + config.num_layers);
  spec.ratios.insert(spec.ratios.end(), static_cast<std::size_t>(drafter_layers), 0);
  return spec;
}

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

// Never silently slow: what of a GPU's step leaves the tensor cores.
std::string off_tensor_cores(const std::vector<KernelChoice>& kernels) {
  std::string note = "not on tensor cores yet: attention and the choice of its entries";
  for (const KernelChoice& row : kernels)
    if (row.unit != "tensor core") note += fmt::format(", {} ({})", row.layer_kind, row.kernel);
  return note + ": expect less than this GPU's speed";
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
  model::ModelConfig config = model::ModelConfig::load(files.folder());
  std::unique_ptr<ModelRunner> runner(new ModelRunner);
  ModelInfo& info = runner->info_;
  info.max_model_len = model_len(options, config, files.config_path());

  const DeviceKind device = resolve_device(options.device);
  const ops::Numerics numerics = numerics_for(options, device, config);
  runner->threads_ =
      std::make_unique<ThreadPool>(options.threads > 0 ? options.threads : available_cpus());
  runner->backend_ = make_backend(device, numerics, *runner->threads_, options.graphs);

  checkpoint::WeightBinder binder(files);
  report(0.05);
  if (!options.draft && config.num_mtp_layers > 0) {
    binder.declare_unused("mtp.", "drafting is off");
    config.num_mtp_layers = 0;
  }
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
  info.drafting = options.draft && drafter_layers(weights) > 0;
  info.kernels = weights.kernels;
  info.notes = weights.notes;
  if (device == DeviceKind::kCuda) info.notes.push_back(off_tensor_cores(info.kernels));
  for (const auto& notes : {files.notes(), binder.notes()})
    info.notes.insert(info.notes.end(), notes.begin(), notes.end());
  info.fingerprint = fingerprint(info);

  CacheLimits& limits = runner->limits_;
  limits.slots = slots;
  limits.pages = options.max_total_tokens > 0 ? page_count(options.max_total_tokens)
                                              : slots * page_count(info.max_model_len);
  limits.max_step_rows =
      std::max(options.prefill_chunk, kMaxDraftRows) + kMaxDraftRows * (slots - 1);
  if (info.drafting) limits.max_draft = weights.dspark ? config.dspark->block_size : kMaxDraft;
  runner->cache_ = std::make_unique<kv::Cache>(*runner->backend_,
                                               cache_spec(config, limits, drafter_layers(weights)));
  info.cache_bytes = runner->cache_->bytes();
  info.max_num_seqs = slots;
  info.cache_tokens = limits.pages * ops::kPageTokens;
  runner->model_ = std::make_unique<model::DeepseekV4>(*runner->backend_, config,
                                                       std::move(weights), limits.max_step_rows);
  // Ready means that a real forward pass has run.
  const TokenId ids[] = {config.bos_token};
  const ops::Segment segments[] = {{0, 1, 0, 0}};
  const std::int32_t pages[] = {0};
  runner->forward({ids, segments, pages});
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

std::vector<Result<GeneratedToken>> ModelRunner::draw(std::span<const DrawRow> rows) {
  // Rows that the host draws from come first; of the others it wants ids only.
  std::vector<std::size_t> order(rows.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto greedy = std::ranges::stable_partition(
      order, [&](std::size_t i) { return !sample::is_argmax(rows[i].draw); });
  const auto drawn = std::ssize(rows) - std::ssize(greedy);
  std::vector<std::int32_t> indices;
  for (const std::size_t i : order) indices.push_back(rows[i].row);
  const tensor::View logits = model_->logits(indices);
  const auto draw_from = [&](std::int64_t at, std::span<const float> row) {
    return sample::draw(row, rows[order[static_cast<std::size_t>(at)]].draw);
  };
  std::vector<Result<GeneratedToken>> out(rows.size(), GeneratedToken{});
  const auto put = [&](std::int64_t at, Result<GeneratedToken> token) {
    out[order[static_cast<std::size_t>(at)]] = std::move(token);
  };
  if (!greedy.empty()) {
    const std::vector<TokenId> ids = best(logits.rows(drawn, std::ssize(greedy)));
    for (std::int64_t i = 0; i < std::ssize(ids); ++i) {
      const TokenId id = ids[static_cast<std::size_t>(i)];
      // The sampler says what is wrong with a row that has no best.
      if (id == ops::kNoBest)
        put(drawn + i, draw_from(drawn + i, to_host(logits.rows(drawn + i, 1))));
      else
        put(drawn + i, GeneratedToken{id, std::nullopt, {}});
    }
  }
  if (drawn == 0) return out;
  const std::span<const float> all = to_host(logits.first(drawn));
  const auto vocab = static_cast<std::size_t>(info_.vocab_size);
  for (std::int64_t i = 0; i < drawn; ++i)
    put(i, draw_from(i, all.subspan(static_cast<std::size_t>(i) * vocab, vocab)));
  return out;
}

std::vector<GeneratedToken> ModelRunner::score(std::int32_t begin, std::span<const TokenId> tokens,
                                               int alternatives) {
  const std::span<const float> all = logits(begin, static_cast<std::int64_t>(tokens.size()));
  const auto vocab = static_cast<std::size_t>(info_.vocab_size);
  std::vector<GeneratedToken> out;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    sample::Logprobs found =
        sample::logprobs(all.subspan(i * vocab, vocab), tokens[i], alternatives);
    out.push_back({tokens[i], found.chosen, std::move(found.top)});
  }
  return out;
}

// The block's row at position t has the token at t + 1 and proposes the one at t + 2. What it writes past the last known token
// is written again when the tokens there are known: a step covers them before anyone reads that far.
std::vector<TokenId> ModelRunner::draft(const ops::Batch& batch, std::span<const DraftRow> rows,
                                        int depth) {
  NIBBLE_CHECK(depth >= 0 && depth <= limits_.max_draft, "depth {} of {}", depth,
               limits_.max_draft);
  if (model_->has_dspark()) return draft_block(batch, rows, depth);
  model_->forward_mtp(batch, *cache_, model_->streams(batch.rows()));
  const std::size_t count = rows.size(), each = static_cast<std::size_t>(depth);
  std::vector<TokenId> proposed(count * each);
  if (proposed.empty()) return proposed;
  std::vector<std::int32_t> indices;
  std::vector<ops::Segment> segments;
  for (const DraftRow& row : rows) {
    ops::Segment segment = batch.segments[static_cast<std::size_t>(row.segment)];
    segment.position += row.row - segment.first_row;
    segment.first_row = static_cast<std::int32_t>(segments.size());
    segment.rows = 1;
    segments.push_back(segment);
    indices.push_back(row.row);
  }
  tensor::View streams = model_->mtp_streams(indices);
  for (std::size_t step = 0;; ++step) {
    std::vector<TokenId> tokens = best(model_->mtp_logits(streams));
    // Any token may be proposed where the drafter has none.
    std::ranges::replace(tokens, ops::kNoBest, 0);
    for (std::size_t i = 0; i < count; ++i) proposed[i * each + step] = tokens[i];
    if (step + 1 == each) return proposed;
    for (ops::Segment& segment : segments) ++segment.position;
    model_->forward_mtp({tokens, segments, batch.pages}, *cache_, streams);
    streams = model_->mtp_streams(static_cast<std::int64_t>(count));
  }
}

std::vector<TokenId> ModelRunner::draft_block(const ops::Batch& batch,
                                              std::span<const DraftRow> rows, int depth) {
  model_->observe_dspark(batch, *cache_);
  if (depth == 0) return {};
  std::vector<model::DsparkStart> starts;
  for (const DraftRow& row : rows) {
    const ops::Segment& segment = batch.segments[static_cast<std::size_t>(row.segment)];
    starts.push_back({segment.slot, segment.position + row.row - segment.first_row,
                      batch.ids[static_cast<std::size_t>(row.row)]});
  }
  return model_->draft_dspark(starts, depth, *cache_).tokens;
}

std::vector<TokenId> ModelRunner::best(const tensor::View& logits) {
  std::vector<TokenId> out(static_cast<std::size_t>(logits.shape[0]));
  backend_->download(model_->best(logits), std::as_writable_bytes(std::span(out)));
  return out;
}

std::vector<std::byte> ModelRunner::save(int slot, int position, std::int32_t page) {
  return cache_->save(slot, position, page);
}

void ModelRunner::restore(int slot, int position, std::int32_t page,
                          std::span<const std::byte> bytes) {
  cache_->restore(slot, position, page, bytes);
}

std::int64_t ModelRunner::saved_bytes(int position) const {
  return cache_->saved_bytes(position);
}

std::vector<std::byte> ModelRunner::save_page(std::int32_t page) {
  return cache_->save_page(page);
}

void ModelRunner::restore_page(std::int32_t page, std::span<const std::byte> bytes) {
  cache_->restore_page(page, bytes);
}

std::int64_t ModelRunner::page_bytes() const {
  return cache_->page_bytes();
}

}  // namespace nibble::engine
