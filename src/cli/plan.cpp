// `nibble plan`: does it fit, and how fast will it be, from config.json and shard headers alone.
#include "plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "api/json_writer.h"
#include "base/log.h"
#include "cli/commands.h"
#include "cli/model_path.h"
#include "hub/cache.h"
#include "hub/remote_folder.h"
#include "hub/settings.h"
#include "nibble/status.h"
#include "plan/schedule.h"

namespace nibble::cli {
namespace {

const std::map<std::string, KvDtype> kKvDtypes = {{"auto", KvDtype::kAuto},
                                                  {"bf16", KvDtype::kBf16},
                                                  {"fp32", KvDtype::kFp32},
                                                  {"fp8", KvDtype::kFp8}};
const std::map<std::string, bool> kSwitch = {{"on", true}, {"off", false}};

struct PlanCommand {
  std::string model = "tiny";
  std::string gpu;
  plan::PlanOptions options;
  bool json = false;
  bool explain = false;
};

constexpr std::int64_t kMaxConfigBytes = 16 << 20;

// Somebody may have fetched config.json alone to ask what the rest would need. Weights of another kind, or an index whose
// shards are missing, are for Checkpoint::open to refuse.
bool has_config_alone(const checkpoint::Folder& folder) {
  constexpr std::string_view kWeights[] = {
      ".safetensors", ".safetensors.index.json", ".bin", ".pt", ".pth", ".pkl", ".ckpt", ".gguf"};
  return folder.has("config.json") &&
         std::ranges::none_of(folder.list(), [&](const std::string& name) {
           return std::ranges::any_of(kWeights,
                                      [&](auto ending) { return name.ends_with(ending); });
         });
}

plan::ModelFacts facts_in(const checkpoint::Folder& folder, const std::string& name) {
  if (has_config_alone(folder))
    return plan::facts_from_config(name, folder.read_text("config.json", kMaxConfigBytes),
                                   folder.path_of("config.json"));
  return plan::facts_of(name, checkpoint::Checkpoint::open(folder));
}

// A repository of the hub by its headers. One that is well known is not worth a wait: its shapes are published.
plan::ModelFacts facts_from_hub(const hub::RepoName& repo, bool well_known) {
  hub::RemoteOptions remote;
  if (well_known) remote.retries = 1;
  const hub::RemoteModel model =
      hub::open_remote_model(hub::settings_from_environment(), repo, remote);
  plan::ModelFacts facts = facts_in(model.folder, repo.text());
  facts.source = fmt::format("the headers of {}, read from the hub", repo.text());
  facts.download_bytes = model.pull_bytes;
  return facts;
}

std::string known_without_files() {
  return "; known without files: " + plan::published_names();
}

// What is on this machine; else the hub's headers; else the published schedule of a well-known name.
plan::ModelFacts model_facts(const std::string& model) {
  if (const auto path = find_model(model)) {
    const checkpoint::Folder folder(path->folder.string());
    plan::ModelFacts facts = facts_in(folder, path->name);
    facts.here = !has_config_alone(folder);
    return facts;
  }
  auto published = plan::published_model(model);
  if (const auto repo = hub::parse_repo_name(model)) {
    try {
      return facts_from_hub(*repo, published.has_value());
    } catch (const CheckpointError&) {
      throw;  // reached, and damaged
    } catch (const Error& error) {
      if (!published) throw Error(error.exit_code(), error.what() + known_without_files());
      published->notes.push_back(error.what());
    }
  }
  if (published) return std::move(*published);
  try {
    require_model(model);  // throws: says where was looked
  } catch (const Error& error) {
    throw Error(error.exit_code(), error.what() + known_without_files());
  }
  throw Error(ExitCode::kUsage, fmt::format("no model '{}'", model));
}

void write_layers(api::JsonWriter& json, const plan::Plan& plan) {
  json.key("layers").begin_array();
  for (const plan::LayerRow& row : plan.layers)
    json.begin_object()
        .member("kind", row.kind)
        .member("count", row.count)
        .member("format", row.format)
        .member("bytes", row.bytes)
        .member("kernel", row.kernel)
        .member("unit", row.unit)
        .end_object();
  json.end_array();
}

void write_decode(api::JsonWriter& json, const plan::Plan& plan) {
  json.key("decode").begin_array();
  for (const plan::DecodeEstimate& e : plan.speed.decode) {
    json.begin_object().member("batch", e.batch);
    json.key("ms").number(e.ms).key("tokens_per_s").number(e.tokens_per_s);
    json.key("floor_ms").number(e.floor_ms).member("bytes", e.bytes).end_object();
  }
  json.end_array();
}

std::string plan_json(const plan::Plan& plan) {
  std::string out;
  api::JsonWriter json(out);
  json.begin_object().member("model", plan.model);
  json.key("gpu")
      .begin_object()
      .member("kind", plan.options.gpu.machine.kind)
      .member("count", plan.options.gpu.count)
      .end_object();
  json.member("context", plan.options.context).member("concurrency", plan.options.concurrency);
  json.key("download")
      .begin_object()
      .member("bytes", plan.download_bytes)
      .member("free", plan.disk_free_bytes)
      .end_object();
  const plan::MemoryPlan& m = plan.memory;
  json.key("memory")
      .begin_object()
      .member("weights", m.weights)
      .member("replicated", m.replicated)
      .member("kv", m.kv)
      .member("state", m.state)
      .member("snapshots", m.snapshots)
      .member("workspace", m.workspace)
      .member("graphs", m.graphs)
      .member("draft", m.draft)
      .member("total", m.total())
      .member("capacity", m.capacity)
      .member("host_snapshots", m.host_snapshots)
      .end_object();
  json.member("fits", m.fits()).key("remedies").begin_array();
  for (const std::string& remedy : plan.remedies) json.string(remedy);
  json.end_array();
  write_layers(json, plan);
  write_decode(json, plan);
  json.key("prefill_tokens_per_s").number(plan.speed.prefill_tokens_per_s);
  json.member("basis", plan.speed.measured ? "kernel" : "roofline").end_object();
  return out + "\n";
}

int run_plan(PlanCommand command) {
  command.options.gpu = plan::parse_gpu(command.gpu);
  const plan::ModelFacts facts = model_facts(command.model);
  const plan::Plan plan =
      plan::make_plan(facts, command.options, hub::free_bytes(hub::hub_cache_folder()));
  std::cout << (command.json ? plan_json(plan) : plan_text(plan, command.explain));
  if (command.json && command.explain) std::cerr << plan_text(plan, true);
  return static_cast<int>(ExitCode::kOk);
}

}  // namespace

Command add_plan(CLI::App& app) {
  const auto command = std::make_shared<PlanCommand>();
  CLI::App* parser = app.add_subcommand(
      "plan",
      "does a model fit a machine, and how fast will it be; reads config and headers only. Exits 0 "
      "whether it fits or not: the answer is in the text, or in \"fits\" of --json");
  parser->add_option("MODEL", command->model,
                     "a folder, OWNER/NAME in the hub cache, a well-known name (its published "
                     "shapes), or tiny (the default)");
  parser
      ->add_option("--gpu", command->gpu,
                   fmt::format("KIND or KIND:N, N of 1..{}; kinds: {}", plan::kMaxGpus,
                               plan::machine_kinds()))
      ->required()
      ->option_text("KIND:N");
  parser
      ->add_option("--context,--max-model-len,--context-length", command->options.context,
                   "tokens of each sequence, prompt and answer (default 4096)")
      ->check(CLI::Range(1, 1 << 24));
  parser
      ->add_option("--concurrency,--max-num-seqs", command->options.concurrency,
                   "sequences at once (default 1)")
      ->check(CLI::Range(1, plan::kMostSequences));
  parser
      ->add_option("--kv-dtype", command->options.kv_dtype,
                   "how cached rows are stored; auto: fp8 on a GPU, else as serve does")
      ->transform(CLI::Transformer(kKvDtypes, CLI::ignore_case))
      ->option_text("auto|bf16|fp32|fp8");
  parser
      ->add_option("--draft", command->options.draft, "load the checkpoint's drafter (default on)")
      ->transform(CLI::Transformer(kSwitch, CLI::ignore_case))
      ->option_text("off|on");
  parser->add_flag("--json", command->json, "one JSON object, bytes as integers");
  parser->add_flag("--explain", command->explain, "the arithmetic, line by line");
  return {parser, [command] {
            init_log("warn");
            return run_plan(*command);
          }};
}

}  // namespace nibble::cli
