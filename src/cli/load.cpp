#include "cli/load.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "cli/model_path.h"
#include "text/encoder_profile.h"

namespace nibble::cli {

std::unique_ptr<api::ServedModel> load_served_model(const ModelOptions& options,
                                                    const std::function<void(double)>& progress) {
  const std::filesystem::path dir = require_model(options.model).folder;
  auto model = std::make_unique<api::ServedModel>();
  // The engine first: it is what refuses a damaged checkpoint, with the better message.
  EngineOptions engine = options.engine;
  engine.model_dir = dir.string();
  model->engine = Engine::load(engine, progress);
  model->tokenizer =
      std::make_unique<text::Tokenizer>(text::Tokenizer::load(dir / "tokenizer.json"));
  if (model->tokenizer->vocab_size() > model->engine->info().vocab_size)
    throw CheckpointError(fmt::format(
        "{}: {} tokens, but the model's vocabulary has {}", (dir / "tokenizer.json").string(),
        model->tokenizer->vocab_size(), model->engine->info().vocab_size));
  model->defaults = api::read_generation_defaults(dir);
  text::EncoderLookup lookup = text::find_encoder(dir, options.encoder);
  model->encoder_note = lookup.note;
  if (lookup.profile)
    model->encoder =
        std::make_unique<text::ChatEncoder>(*model->tokenizer, std::move(*lookup.profile));
  return model;
}

void log_model(const api::ServedModel& model) {
  const ModelInfo& info = model.engine->info();
  std::size_t kind = 10, format = 6, kernel = 6;
  for (const KernelChoice& row : info.kernels) {
    kind = std::max(kind, row.layer_kind.size());
    format = std::max(format, row.format.size());
    kernel = std::max(kernel, row.kernel.size());
  }
  spdlog::info("{:<{}}  {:<{}}  {:>5}  {:>9}  {:<{}}  {}", "layer kind", kind, "format", format,
               "count", "MB", "kernel", kernel, "unit");
  for (const KernelChoice& row : info.kernels)
    spdlog::info("{:<{}}  {:<{}}  {:>5}  {:>9.2f}  {:<{}}  {}", row.layer_kind, kind, row.format,
                 format, row.count, static_cast<double>(row.bytes) / 1e6, row.kernel, kernel,
                 row.unit);
  spdlog::info(
      "{}: {:.1f} MB of weights, {:.1f} MB of cache for {} tokens in {} sequences of up to {}; {}; "
      "activations {}, cached rows {}; {}",
      info.name, static_cast<double>(info.weight_bytes) / 1e6,
      static_cast<double>(info.cache_bytes) / 1e6, info.cache_tokens, info.max_num_seqs,
      info.max_model_len, info.device, info.activations, info.kv_dtype,
      info.drafting ? "drafting" : "no drafting");
  for (const auto* notes : {&info.notes, &model.defaults.notes})
    for (const std::string& note : *notes) spdlog::info("note: {}", note);
  if (!model.encoder) spdlog::warn("chat is unavailable: {}", model.encoder_note);
}

}  // namespace nibble::cli
