// `nibble bench`: measurements. `serve` is a load generator for a running server.
#include <fmt/format.h>
#include <sys/resource.h>

#include <csignal>
#include <map>
#include <memory>
#include <string>

#include "bench/serve_bench.h"
#include "cli/commands.h"
#include "cli/progress.h"
#include "nibble/status.h"

namespace nibble::cli {
namespace {

struct BenchServeCommand {
  bench::ServeBenchOptions options;
  std::string kind = "random";
  std::string prompt_tokens = "64:256";
  std::string turns = "4:8";
  std::string other_word;  // what stands where `serve` should
  bool json = false;
  bool allow_failures = false;
};

// "N" or "LOW:HIGH".
bench::LengthRange read_range(const std::string& flag, const std::string& text) {
  const auto fail = [&] {
    throw Error(ExitCode::kUsage,
                fmt::format("{} {}: expected N or LOW:HIGH, whole numbers from 1", flag, text));
  };
  const auto number = [&](const std::string& part) {
    if (part.empty() || part.size() > 8 || part.find_first_not_of("0123456789") != part.npos)
      fail();
    const int value = std::stoi(part);
    if (value < 1) fail();
    return value;
  };
  const std::size_t colon = text.find(':');
  bench::LengthRange range;
  range.low = number(text.substr(0, colon));
  range.high = colon == std::string::npos ? range.low : number(text.substr(colon + 1));
  if (range.high < range.low) fail();
  return range;
}

// A shell's usual limit of 1,024 open files is a little less than 1,024 connections need.
void allow_many_connections() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)setrlimit(RLIMIT_NOFILE, &limit);
}

int run_bench_serve(BenchServeCommand& command) {
  static const std::map<std::string, bench::TraceKind> kKinds = {
      {"random", bench::TraceKind::kRandom},
      {"shared-prefix", bench::TraceKind::kSharedPrefix},
      {"agent", bench::TraceKind::kAgent}};
  bench::ServeBenchOptions& options = command.options;
  options.trace.kind = kKinds.at(command.kind);
  options.trace.prompt = read_range("--prompt-tokens", command.prompt_tokens);
  options.trace.turns = read_range("--turns", command.turns);
  options.load.seed = options.trace.seed;
  if (options.baseline_model.empty() && !options.baseline.empty())
    options.baseline_model = options.model;
  std::signal(SIGPIPE, SIG_IGN);
  allow_many_connections();
  const bench::ServeBench result = [&] {
    Progress progress("bench serve");
    return bench::run_serve_bench(options, [&](double share) { progress.show(share); });
  }();
  const bench::Report* baseline = result.baseline ? &*result.baseline : nullptr;
  if (command.json)
    fmt::print("{}\n", bench::report_json(result.run, result.report, baseline, result.records));
  else
    fmt::print("{}", bench::report_text(result.run, result.report, baseline));
  const bool failed = result.report.failed() || (baseline && baseline->failed());
  return static_cast<int>(failed && !command.allow_failures ? ExitCode::kFailed : ExitCode::kOk);
}

void add_trace_options(CLI::App& command, BenchServeCommand& state) {
  bench::TraceOptions& trace = state.options.trace;
  command
      .add_option("--trace", state.kind,
                  "random: a text of its own each (the default); shared-prefix: a few system "
                  "prompts, many questions; agent: conversations that repeat their history")
      ->check(CLI::IsMember({"random", "shared-prefix", "agent"}));
  command.add_option("--text", state.options.text_file,
                     "take the words from this file (default: sentences made up from the seed)");
  command.add_option("--seed", trace.seed, "same seed, same requests (default 1)");
  command.add_option("--requests", trace.requests, "how many (default 100)")
      ->check(CLI::Range(1, 10000000));
  command.add_option("--prompt-tokens", state.prompt_tokens,
                     "random: length of a prompt, agent: of a tool's result; N or LOW:HIGH, at 4 "
                     "bytes a token (default 64:256)");
  command.add_option("--prefixes", trace.prefixes, "different system prompts (default 4)")
      ->check(CLI::Range(1, 100000));
  command
      .add_option("--prefix-tokens", trace.prefix_tokens, "length of a system prompt (default 512)")
      ->check(CLI::Range(1, 10000000));
  command.add_option("--turns", state.turns,
                     "agent: requests of a conversation; N or LOW:HIGH (default 4:8)");
  command
      .add_option("--think", trace.think_s,
                  "agent: mean seconds between an answer and the next request (default 0.5)")
      ->check(CLI::Range(0.0, 86400.0));
}

void add_load_options(CLI::App& command, BenchServeCommand& state) {
  bench::LoadOptions& load = state.options.load;
  CLI::Option* rate =
      command
          .add_option(
              "--rate", load.rate,
              "requests per second, arriving at random (open loop), instead of --concurrency")
          ->check(CLI::PositiveNumber);
  command
      .add_option("--concurrency", load.concurrency,
                  "conversations at any time (closed loop, default 1)")
      ->check(CLI::Range(1, 1024))
      ->excludes(rate);
  command.add_option("--max-tokens", load.max_tokens, "of each answer (default 128)")
      ->check(CLI::Range(1, 1 << 24));
  command.add_option("--temperature", load.temperature, "default 0")->check(CLI::Range(0.0, 2.0));
  command.add_flag("--ignore-eos", load.ignore_eos,
                   "answers of full length (a field that some servers do not know)");
  command
      .add_option("--warmup", state.options.warmup, "requests before the measured ones (default 0)")
      ->check(CLI::Range(0, 1000000));
  command.add_flag("--retry", load.retry, "come back after 429 and 503 as Retry-After says");
  command.add_option("--timeout", load.timeout_s, "seconds for a request (default 600)")
      ->check(CLI::Range(0.1, 86400.0));
}

}  // namespace

Command add_bench(CLI::App& app) {
  const auto state = std::make_shared<BenchServeCommand>();
  bench::ServeBenchOptions& options = state->options;
  CLI::App* bench = app.add_subcommand("bench", "measure; `serve` loads a running server");
  // Another word than a measurement's lands here, so that the message about it is ours.
  bench->add_option("MEASUREMENT", state->other_word)->group("");
  CLI::App* command = bench->add_subcommand(
      "serve", "send a made-up load to a running server and report latencies and rates");
  command->add_option("URL", options.url, "the server (default http://127.0.0.1:8000)");
  command->add_option("--baseline", options.baseline,
                      "URL of another server: the same requests, block by block in turn, and the "
                      "ratios");
  command->add_option("--model", options.model, "name in requests (default: the first one served)");
  command->add_option("--baseline-model", options.baseline_model,
                      "name of the model there (default: as --model)");
  command->add_option("--api-key", options.api_key, "bearer key")->envname("NIBBLE_API_KEY");
  add_trace_options(*command, *state);
  add_load_options(*command, *state);
  command->add_flag("--json", state->json, "JSON, with every request");
  command->add_flag("--allow-failures", state->allow_failures,
                    "exit status 0 although requests failed");
  command->footer(
      "A token's latency: an event of k tokens that comes g ms after the one before it counts as k "
      "tokens of g/k ms. Without k from the server (continuous_usage_stats) tokens are spread "
      "evenly. Times begin when a request is due. Exit status 1 when a request failed.");
  return {bench, [state, command] {
            if (command->parsed()) return run_bench_serve(*state);
            throw Error(ExitCode::kUsage,
                        fmt::format("bench{}{}: expected `nibble bench serve`, the only "
                                    "measurement in this version",
                                    state->other_word.empty() ? "" : " ", state->other_word));
          }};
}

}  // namespace nibble::cli
