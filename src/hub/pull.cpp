#include "hub/pull.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>

#include "checkpoint/folder.h"
#include "checkpoint/quote.h"
#include "checkpoint/shard_index.h"
#include "hub/cache.h"
#include "hub/file_lock.h"
#include "hub/lock_file.h"
#include "nibble/status.h"

namespace nibble::hub {
namespace {

namespace fs = std::filesystem;
using checkpoint::quote;

constexpr std::size_t kNamesInAMessage = 8;
constexpr std::int64_t kLargestLockFile = 16'000'000;
constexpr std::int64_t kBlock_bytes = 4096;
// Without the network the cache may do, or a person waits: no reason for the patience of a download.
constexpr int kListingRetries = 3;

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// What an earlier pull of this commit wrote down. A damaged one is as good as none: everything is hashed again.
std::optional<LockFile> read_lock(const fs::path& snapshot) {
  const fs::path path = snapshot / kLockFileName;
  std::error_code error;
  if (!fs::is_regular_file(path, error) ||
      fs::file_size(path, error) > static_cast<std::uintmax_t>(kLargestLockFile))
    return std::nullopt;
  try {
    return parse_lock_file(path.string(), read_file(path));
  } catch (const CheckpointError&) {
    return std::nullopt;
  }
}

std::int64_t size_of(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return -1;
  const auto size = fs::file_size(path, error);
  return error ? -1 : static_cast<std::int64_t>(size);
}

std::string list_names(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kNamesInAMessage); ++i)
    text += (i ? ", " : "") + quote(names[i]);
  if (names.size() > kNamesInAMessage)
    text += fmt::format(" and {} more", names.size() - kNamesInAMessage);
  return text;
}

class Pull {
 public:
  Pull(const Settings& settings, const RepoName& repo, const PullOptions& options,
       const PullWatcher& watcher)
      : settings_(settings),
        repo_(repo),
        options_(options),
        watcher_(watcher),
        cache_(settings.cache, repo) {}

  PullResult run() {
    if (settings_.offline) return from_cache("HF_HUB_OFFLINE is set");
    // A commit never changes: an ordinary pull that was finished needs no one's word.
    if (is_commit(repo_.revision) && !options_.selection.all &&
        options_.selection.include.empty() && missing_from_cache().empty())
      return from_cache("the commit is in the cache");
    HttpClient client(client_options(settings_, options_.stall_limit_s, watcher_.cancelled));
    std::optional<FileLock> lock;
    if (!options_.dry_run)
      lock.emplace(
          cache_.pull_lock(),
          [this] { note(fmt::format("another pull of {} is running; waiting for it", repo_.id)); },
          watcher_.cancelled);
    PullPlan plan;
    try {
      plan.listing =
          list_repository(client, repo_, std::min(options_.download.retries, kListingRetries));
    } catch (const HubUnreachable& error) {
      if (!missing_from_cache().empty()) throw;
      return from_cache(error.what());
    }
    prepare(plan);
    if (watcher_.plan) watcher_.plan(plan);
    check_space(plan);
    if (options_.dry_run) return result(plan);
    fetch(client, plan);
    return publish(plan);
  }

 private:
  void note(const std::string& line) const {
    if (watcher_.note) watcher_.note(line);
  }

  bool cancelled() const { return watcher_.cancelled && watcher_.cancelled(); }

  // Without the hub: what the snapshot of this revision lacks; one line for "no snapshot at all".
  std::vector<std::string> missing_from_cache() const {
    const auto snapshot = cache_.cached_snapshot();
    if (!snapshot) return {repo_.text()};
    std::vector<std::string> missing;
    if (const auto lock = read_lock(*snapshot)) {
      for (const auto& [path, file] : lock->files)
        if (size_of(*snapshot / path) != file.size) missing.push_back(path);
      return missing;
    }
    // From another tool: at least what a model is made of.
    const checkpoint::Folder folder(snapshot->string());
    const std::vector<std::string> names = folder.list();
    std::vector<std::string> needed = {"config.json"};
    if (folder.has(checkpoint::kShardIndexName)) {
      const auto index = checkpoint::parse_shard_index(
          folder.path_of(checkpoint::kShardIndexName),
          folder.read_text(checkpoint::kShardIndexName, checkpoint::kMaxShardIndexBytes));
      needed.insert(needed.end(), index.shards.begin(), index.shards.end());
    } else if (std::none_of(names.begin(), names.end(), [](const std::string& name) {
                 return name.ends_with(".safetensors");
               })) {
      needed.emplace_back("model.safetensors");
    }
    for (const std::string& name : needed)
      if (size_of(*snapshot / name) < 0) missing.push_back(name);
    return missing;
  }

  PullResult from_cache(const std::string& reason) const {
    const std::vector<std::string> missing = missing_from_cache();
    const auto snapshot = cache_.cached_snapshot();
    if (!snapshot)
      throw Error(ExitCode::kFailed, fmt::format("{}: {}, and the cache ({}) does not have it",
                                                 repo_.text(), reason, settings_.cache.string()));
    if (!missing.empty())
      throw Error(ExitCode::kFailed,
                  fmt::format("{}: {}, and the cache lacks {} of its files: {}", repo_.text(),
                              reason, missing.size(), list_names(missing)));
    note(fmt::format("{}: {}; taken from the cache", repo_.text(), reason));
    PullResult result;
    result.snapshot = *snapshot;
    result.commit = snapshot->filename().string();
    result.asked_hub = false;
    return result;
  }

  // Which files are there already: verified by an earlier pull, or hashed now.
  void prepare(PullPlan& plan) const {
    plan.selected = select(options_.selection, plan.listing.files);
    if (plan.selected.empty())
      throw CheckpointError(
          fmt::format("{}: none of its {} files is a *.safetensors or *.json file; --all fetches "
                      "everything",
                      repo_.text(), plan.listing.files.size()));
    const auto lock = read_lock(cache_.snapshot(plan.listing.commit));
    for (const HubFile& file : plan.selected) {
      if (!is_there(file, lock)) plan.missing.push_back(file);
    }
    // The same bytes under two names are fetched once.
    std::map<std::string, std::int64_t> sizes;
    std::erase_if(plan.missing, [&](const HubFile& file) {
      const auto [known, fresh] = sizes.emplace(file.hash.hex(), file.size);
      if (!fresh && known->second != file.size)
        throw CheckpointError(
            fmt::format("{}: file {}: the size is {}, another file of the same "
                        "hash has {}",
                        repo_.text(), quote(file.path), file.size, known->second));
      return !fresh;
    });
    for (const HubFile& file : plan.missing) {
      const std::int64_t whole = (file.size + kBlock_bytes - 1) / kBlock_bytes * kBlock_bytes;
      plan.needed_bytes += std::max<std::int64_t>(0, whole - partial_bytes_on_disk(cache_, file));
    }
    plan.free_bytes = free_bytes(cache_.root());
  }

  bool is_there(const HubFile& file, const std::optional<LockFile>& lock) const {
    const fs::path blob = cache_.blob(file.hash.hex());
    if (size_of(blob) != file.size) return false;
    if (lock) {
      const auto known = lock->files.find(file.path);
      if (known != lock->files.end() && known->second.hash == file.hash) return true;
    }
    const auto found = hash_file(blob, file.hash, file.size, [this] { return cancelled(); });
    if (!found) throw Interrupted();
    if (*found == file.hash.hex()) return true;
    note(fmt::format("{}: the cache's copy is damaged; it is fetched again", quote(file.path)));
    return false;
  }

  void check_space(const PullPlan& plan) const {
    if (plan.needed_bytes <= plan.free_bytes) return;
    std::string text =
        fmt::format("{}: the disk of {} is too small: {} needed, {} free, {} missing", repo_.text(),
                    settings_.cache.string(), bytes_text(plan.needed_bytes),
                    bytes_text(plan.free_bytes), bytes_text(plan.needed_bytes - plan.free_bytes));
    std::vector<std::string> keep;
    for (const HubFile& file : plan.selected) keep.push_back(file.hash.hex());
    const std::vector<Removable> candidates = removable(cache_, keep);
    if (candidates.empty()) text += "; the cache holds nothing that could be deleted";
    for (std::size_t i = 0; i < std::min(candidates.size(), kNamesInAMessage); ++i)
      text += fmt::format("\n  {:>10}  {}  ({})", bytes_text(candidates[i].bytes),
                          candidates[i].what, candidates[i].path.string());
    if (!candidates.empty()) text += "\n  could be deleted, or HF_HOME set to another disk";
    throw Error(ExitCode::kFailed, text);
  }

  void fetch(HttpClient& client, const PullPlan& plan) const {
    if (plan.missing.empty()) return;
    const std::int64_t total = total_bytes(plan.missing);
    DownloadWatcher watcher;
    watcher.note = watcher_.note;
    watcher.progress = [&](std::int64_t bytes) {
      if (watcher_.progress) watcher_.progress(bytes, total);
    };
    download(client, cache_, repo_, plan.listing.commit, plan.missing, options_.download, watcher);
  }

  PullResult publish(const PullPlan& plan) const {
    const std::string& commit = plan.listing.commit;
    LockFile lock{repo_.id, commit, {}};
    // What an earlier pull with another selection brought is still there.
    if (auto before = read_lock(cache_.snapshot(commit)); before && before->commit == commit)
      for (auto& [path, file] : before->files)
        if (size_of(cache_.snapshot(commit) / path) == file.size) lock.files[path] = file;
    for (const HubFile& file : plan.selected) {
      cache_.link(commit, file.path, file.hash.hex());
      lock.files[file.path] = file;
    }
    const std::string text = lock_file_text(lock);
    const fs::path path = cache_.snapshot(commit) / kLockFileName;
    if (read_file(path) != text) write_file_whole(path, text);
    cache_.write_ref(commit);
    return result(plan);
  }

  PullResult result(const PullPlan& plan) const {
    PullResult result;
    result.snapshot = cache_.snapshot(plan.listing.commit);
    result.commit = plan.listing.commit;
    result.files = plan.selected.size();
    result.bytes = total_bytes(plan.selected);
    result.fetched_files = plan.missing.size();
    return result;
  }

  const Settings& settings_;
  const RepoName& repo_;
  const PullOptions& options_;
  const PullWatcher& watcher_;
  const RepoCache cache_;
};

}  // namespace

PullResult pull(const Settings& settings, const RepoName& repo, const PullOptions& options,
                const PullWatcher& watcher) {
  return Pull(settings, repo, options, watcher).run();
}

std::string bytes_text(std::int64_t bytes) {
  constexpr std::array kUnits = {"KB", "MB", "GB", "TB"};
  if (bytes < 1000) return fmt::format("{} bytes", bytes);
  double value = static_cast<double>(bytes) / 1000.0;
  std::size_t unit = 0;
  for (; value >= 1000.0 && unit + 1 < kUnits.size(); ++unit) value /= 1000.0;
  return fmt::format("{:.{}f} {}", value, value < 10.0 ? 2 : 1, kUnits[unit]);
}

}  // namespace nibble::hub
