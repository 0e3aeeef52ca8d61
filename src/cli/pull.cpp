// `nibble pull`: a repository of the model hub into the cache.
#include <fmt/format.h>

#include <atomic>
#include <csignal>
#include <memory>
#include <mutex>
#include <string>

#include "checkpoint/quote.h"
#include "cli/commands.h"
#include "cli/progress.h"
#include "hub/pull.h"

namespace nibble::cli {
namespace {

struct PullCommand {
  std::string repo;
  hub::PullOptions options;
};

std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free, "set by a signal handler");

void print_plan(const hub::PullPlan& plan) {
  for (const hub::HubFile& file : plan.selected)
    fmt::print(stderr, "{:>11}  {}\n", hub::bytes_text(file.size), checkpoint::quote(file.path));
  const auto others = plan.listing.files.size() - plan.selected.size();
  fmt::print(stderr, "{} files, {}", plan.selected.size(),
             hub::bytes_text(hub::total_bytes(plan.selected)));
  if (others > 0)
    fmt::print(stderr, " ({} others are left out; --all or --include fetch them)", others);
  fmt::print(stderr, "\n{} on the disk still needed, {} free\n", hub::bytes_text(plan.needed_bytes),
             hub::bytes_text(plan.free_bytes));
}

int run_pull(const PullCommand& command) {
  const auto repo = hub::parse_repo_name(command.repo);
  if (!repo)
    throw Error(ExitCode::kUsage, fmt::format("pull {}: expected OWNER/NAME or OWNER/NAME@REVISION",
                                              checkpoint::quote(command.repo)));
  // First time: stop in order. Second time: the signal's own way.
  for (const int signal : {SIGINT, SIGTERM}) {
    struct sigaction action {};
    action.sa_handler = [](int) { interrupted = true; };
    action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
    sigaction(signal, &action, nullptr);
  }
  std::signal(SIGXFSZ, SIG_IGN);  // a file size limit is an error like a full disk
  std::signal(SIGPIPE, SIG_IGN);

  TransferProgress progress("pull");
  std::mutex printing;  // notes come from the download's threads
  hub::PullWatcher watcher;
  watcher.plan = print_plan;
  watcher.progress = [&](std::int64_t done, std::int64_t total) {
    const std::lock_guard lock(printing);
    progress.show(done, total);
  };
  watcher.note = [&](const std::string& line) {
    const std::lock_guard lock(printing);
    progress.clear();
    fmt::print(stderr, "nibble: {}\n", line);
  };
  watcher.cancelled = [] { return interrupted.load(); };
  hub::PullResult result;
  try {
    result = hub::pull(hub::settings_from_environment(), *repo, command.options, watcher);
  } catch (const hub::Interrupted&) {
    progress.clear();
    throw Error(ExitCode::kFailed,
                fmt::format("pull {}: interrupted; what has arrived is kept, and the same command "
                            "goes on from there",
                            command.repo));
  } catch (...) {
    progress.clear();
    throw;
  }
  progress.clear();
  if (command.options.dry_run) return static_cast<int>(ExitCode::kOk);
  if (result.asked_hub)
    fmt::print(stderr, "{}: {} files, {}, verified; {} fetched now; commit {}\n", repo->text(),
               result.files, hub::bytes_text(result.bytes), result.fetched_files, result.commit);
  fmt::print("{}\n", result.snapshot.string());
  return static_cast<int>(ExitCode::kOk);
}

}  // namespace

Command add_pull(CLI::App& app) {
  const auto state = std::make_shared<PullCommand>();
  hub::PullOptions& options = state->options;
  CLI::App* command = app.add_subcommand(
      "pull", "download a repository into the hub cache, verified; prints its folder");
  command->add_option("REPO", state->repo, "OWNER/NAME or OWNER/NAME@REVISION")->required();
  command
      ->add_option("--include", options.selection.include,
                   "also fetch files that match this pattern (may be repeated); by default only "
                   "*.safetensors, *.json, LICENSE*, README* and encoding/*.py are")
      ->expected(1)
      ->take_all();
  command->add_flag("--all", options.selection.all, "fetch every file");
  command->add_flag("--dry-run", options.dry_run, "list the files and check the space only");
  command->add_option("--connections", options.download.connections, "requests at once (default 8)")
      ->check(CLI::Range(1, 64));
  command
      ->add_option("--retries", options.download.retries,
                   "tries after a failed request without progress (default 8)")
      ->check(CLI::Range(0, 100));
  command
      ->add_option("--timeout", options.stall_limit_s,
                   "seconds without data after which a request has failed (default 30)")
      ->check(CLI::Range(1, 3600));
  command->footer(
      "Environment: HF_HOME, HF_HUB_CACHE, HF_TOKEN, HF_TOKEN_PATH, HF_ENDPOINT, HF_HUB_OFFLINE.");
  return {command, [state] { return run_pull(*state); }};
}

}  // namespace nibble::cli
