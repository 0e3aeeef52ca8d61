#include <map>
#include <string>

#include "cli/commands.h"
#include "cli/foreign_flags.h"
#include "cli/options.h"

namespace nibble::cli {
namespace {

const std::map<std::string, DeviceKind> kDevices = {{"auto", DeviceKind::kAuto},
                                                    {"ref", DeviceKind::kRef},
                                                    {"cpu", DeviceKind::kCpu},
                                                    {"cuda", DeviceKind::kCuda}};
const std::map<std::string, Activations> kActivations = {{"auto", Activations::kAuto},
                                                         {"exact", Activations::kExact},
                                                         {"release", Activations::kRelease}};
const std::map<std::string, KvDtype> kKvDtypes = {{"auto", KvDtype::kAuto},
                                                  {"fp32", KvDtype::kFp32},
                                                  {"bf16", KvDtype::kBf16},
                                                  {"fp8", KvDtype::kFp8}};
const std::map<std::string, bool> kSwitch = {{"on", true}, {"off", false}};

template <typename T>
void add_choice(CLI::App& command, const std::string& names, T& value,
                const std::map<std::string, T>& choices, const std::string& text) {
  std::string words;
  for (const auto& [word, unused] : choices) words += (words.empty() ? "" : "|") + word;
  command.add_option(names, value, text)
      ->transform(CLI::Transformer(choices, CLI::ignore_case))
      ->option_text(words);
}

}  // namespace

void add_model_options(CLI::App& command, ModelOptions& model, std::string& log_level) {
  EngineOptions& engine = model.engine;
  add_choice(command, "--device", engine.device, kDevices,
             "where the model runs (default: an NVIDIA GPU if there is one, else the CPU); ref is "
             "the slow, readable specification");
  add_choice(
      command, "--activations", engine.activations, kActivations,
      "what is rounded besides the weights; auto: release on a GPU or where the config names an "
      "activation scheme");
  add_choice(command, "--kv-dtype", engine.kv_dtype, kKvDtypes,
             "how cached rows are stored; auto: fp32 with exact, else fp8");
  add_choice(
      command, "--draft", engine.draft, kSwitch,
      "draft with the checkpoint's MTP or DSpark blocks (default on; never changes an answer)");
  command
      .add_option("--draft-tokens,--num-speculative-tokens", engine.draft_tokens,
                  "tokens drafted for each answer and step (default: as many as pay; at most "
                  "4 with an MTP block, the block size with DSpark)")
      ->check(CLI::Range(1, 7));
  command.add_flag_callback(
      "--enforce-eager,--disable-cuda-graph", [&engine] { engine.graphs = false; },
      "on a GPU: launch a step's kernels one by one instead of as a CUDA graph (same answers)");
  command.add_option("--threads", engine.threads, "CPU threads (default: one a core)")
      ->check(CLI::Range(1, 1024));
  command
      .add_option("--max-num-seqs,--max-running-requests", engine.max_num_seqs,
                  "sequences that run together (serve: 8, run: 1)")
      ->check(CLI::Range(1, 256));
  command
      .add_option("--max-total-tokens", engine.max_total_tokens,
                  "tokens that all sequences together have cache memory for (default: a whole "
                  "context for each of --max-num-seqs)")
      ->check(CLI::Range(1, 1 << 30));
  command
      .add_option("--max-model-len,--context-length", engine.max_model_len,
                  "tokens a sequence may have, prompt and answer")
      ->check(CLI::Range(1, 1 << 24));
  command
      .add_option("--prefill-chunk,--chunked-prefill-size,--max-num-batched-tokens",
                  engine.prefill_chunk, "prompt tokens a step takes at most (default 256)")
      ->check(CLI::Range(1, 1 << 16));
  command
      .add_option("--step-budget-ms", engine.step_budget_ms,
                  "milliseconds of a step beside running streams: prompts take what fits "
                  "(default 50)")
      ->check(CLI::Range(1.0, 60000.0));
  command
      .add_option_function<std::int64_t>(
          "--prefix-cache-mib", [&engine](std::int64_t mib) { engine.snapshot_bytes = mib << 20; },
          "host memory for the places where prompts can go on from earlier ones (default 256; "
          "0: no prefix cache)")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 30));
  command
      .add_option_function<std::int64_t>(
          "--host-cache-mib", [&engine](std::int64_t mib) { engine.host_cache_bytes = mib << 20; },
          "host memory for cached prefixes that make room for running requests (default 0)")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 30));
  command.add_option("--encoder", model.encoder, "chat grammar for a checkpoint that brings none")
      ->check(CLI::IsMember({"preview", "0731"}));
  command.add_option("--log-level", log_level, "debug, info, warn, error or off")
      ->check(CLI::IsMember({"debug", "info", "warn", "error", "off"}));
  accept_foreign_flags(command);
}

}  // namespace nibble::cli
