#include "audit/audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "audit/expected_hashes.h"
#include "audit/file_check.h"
#include "audit/file_hash.h"
#include "audit/file_kind.h"
#include "audit/name_check.h"
#include "audit/repository.h"
#include "audit/weights.h"
#include "base/thread_pool.h"
#include "checkpoint/quote.h"

namespace nibble::audit {
namespace {

using checkpoint::quote;

constexpr int kMostThreads = 4;  // hashing: about 2 GB/s each, and disks are no faster than that
constexpr std::int64_t kMaxLockBytes = 16 << 20;
constexpr std::int64_t kMaxHubMetadataBytes = 4096;

class Audit {
 public:
  Audit(const std::string& path, const Options& options)
      : options_(options), repository_(list_repository(path)), facts_(repository_.entries.size()) {
    for (std::size_t i = 0; i < repository_.entries.size(); ++i)
      place_of_.emplace(repository_.entries[i].report.name, i);
  }

  Report run(const std::function<void(double)>& progress) {
    read_expected_hashes();
    plan_hashing();
    check_files(progress);
    check_together();
    Report report;
    report.model = repository_.path;
    report.findings = std::move(repository_.findings);
    for (Entry& entry : repository_.entries) report.files.push_back(std::move(entry.report));
    allow(report.findings);
    for (FileReport& file : report.files) allow(file.findings);
    return report;
  }

 private:
  std::string display(const Entry& entry) const {
    return repository_.path + "/" + printable(entry.report.name);
  }

  Entry* entry_named(const std::string& name) {
    const auto found = place_of_.find(name);
    return found == place_of_.end() ? nullptr : &repository_.entries[found->second];
  }

  // Small files, before the others: what it says is needed to check those.
  std::string read_small(const Entry& entry, std::int64_t most,
                         std::vector<Finding>& findings) const {
    if (entry.open_path.empty()) return {};
    try {
      const checkpoint::File file = open_entry(entry, display(entry));
      if (file.size() > most) {
        add(findings, Code::kTooLarge,
            fmt::format("{} bytes, expected at most {}", file.size(), most));
        return {};
      }
      std::string text(static_cast<std::size_t>(file.size()), '\0');
      file.read_at(0, std::as_writable_bytes(std::span(text)));
      return text;
    } catch (const std::exception& error) {
      add(findings, Code::kUnreadable, error.what());
      return {};
    }
  }

  void read_expected_hashes() {
    if (Entry* lock = entry_named(std::string(kLockName)); lock && !lock->open_path.empty()) {
      has_lock_ = true;
      std::vector<Finding>& findings = lock->report.findings;
      const std::string text = read_small(*lock, kMaxLockBytes, findings);
      if (!has_refusal(findings) && !text.empty()) lock_ = parse_lock(text, findings);
    }
    for (Entry& entry : repository_.entries) {
      const std::string& name = entry.report.name;
      if (!entry.blob.empty()) {
        ExpectedHash hash{HashKind::kSha256, entry.blob, "the hub cache's blob name"};
        if (hash_kind_of(hash.hex, hash.kind)) expected_[name].push_back(std::move(hash));
      }
      constexpr std::string_view kEnding = ".metadata";
      if (kind_of(name) != FileKind::kHubMetadata || !name.ends_with(kEnding)) continue;
      const std::string text = read_small(entry, kMaxHubMetadataBytes, entry.report.findings);
      const std::string of = name.substr(kHubMetadataFolder.size(),
                                         name.size() - kHubMetadataFolder.size() - kEnding.size());
      if (const auto hash = parse_hub_metadata(text); hash && entry_named(of) != nullptr)
        expected_[of].push_back(*hash);
    }
    for (const auto& [name, locked] : lock_) check_locked(name, locked);
  }

  void check_locked(const std::string& name, const LockedFile& locked) {
    Entry* entry = entry_named(name);
    if (entry == nullptr)
      return add(repository_.findings, Code::kMissingFile,
                 fmt::format("{} is in {} and not in the folder", quote(name), kLockName),
                 printable(name));
    if (entry->open_path.empty()) return;
    if (locked.size && *locked.size != entry->report.size) {
      add(entry->report.findings, Code::kSizeMismatch,
          fmt::format("expected {} bytes by {}, found {}", *locked.size, kLockName,
                      entry->report.size));
      return;
    }
    if (locked.hash) expected_[name].push_back(*locked.hash);
  }

  void plan_hashing() {
    std::int64_t skipped = 0;
    std::size_t skipped_files = 0;
    for (Entry& entry : repository_.entries) {
      const auto found = expected_.find(entry.report.name);
      if (found == expected_.end() || entry.open_path.empty()) continue;
      if (!options_.hash_large_files && entry.report.size > kSmallFileBytes) {
        entry.report.hash = HashState::kSkipped;
        skipped += entry.report.size;
        ++skipped_files;
        continue;
      }
      std::set<HashKind> kinds;
      for (const ExpectedHash& hash : found->second) kinds.insert(hash.kind);
      to_hash_ += entry.report.size * static_cast<std::int64_t>(kinds.size());
    }
    if (skipped_files > 0)
      add(repository_.findings, Code::kHashSkipped,
          fmt::format("{} files of {} bytes in all were not hashed", skipped_files, skipped));
    if (expected_.empty() && !has_lock_)
      add(repository_.findings, Code::kNoHashes,
          fmt::format("no hashes to compare with: there is no {}, and the folder is no hub cache",
                      kLockName));
  }

  // Each file by one thread; files share nothing. The calling thread reports.
  void check_files(const std::function<void(double)>& progress) {
    const int threads =
        options_.threads > 0 ? options_.threads : std::min(kMostThreads, available_cpus());
    std::atomic<std::size_t> next{0};
    std::mutex mutex;
    std::condition_variable changed;
    int working = threads;  // under mutex
    std::vector<std::jthread> workers;
    workers.reserve(static_cast<std::size_t>(threads));
    for (int i = 0; i < threads; ++i) {
      workers.emplace_back([&] {
        for (std::size_t at = next++; at < repository_.entries.size(); at = next++) check_entry(at);
        const std::lock_guard lock(mutex);
        --working;
        changed.notify_one();
      });
    }
    std::unique_lock lock(mutex);
    while (!changed.wait_for(lock, std::chrono::milliseconds(100), [&] { return working == 0; })) {
      if (progress && to_hash_ > 0)
        progress(static_cast<double>(hashed_.load()) / static_cast<double>(to_hash_));
    }
  }

  void check_entry(std::size_t at) {
    Entry& entry = repository_.entries[at];
    if (entry.open_path.empty()) return;
    try {
      const checkpoint::File file = open_entry(entry, display(entry));
      facts_[at] = check_file(entry.report.name, file, entry.report.findings);
      compare_hashes(entry, file);
    } catch (const std::exception& error) {
      // One damaged file must not stop the verdicts of the others.
      add(entry.report.findings, Code::kUnreadable, error.what());
    }
  }

  void compare_hashes(Entry& entry, const checkpoint::File& file) {
    const auto expected = expected_.find(entry.report.name);
    if (expected == expected_.end() || entry.report.hash == HashState::kSkipped) return;
    entry.report.hash = HashState::kVerified;
    std::map<HashKind, std::string> found;
    for (const ExpectedHash& hash : expected->second) {
      if (!found.contains(hash.kind))
        found[hash.kind] =
            hash_file(file, hash.kind, [this](std::int64_t bytes) { hashed_ += bytes; });
      if (found[hash.kind] == hash.hex) continue;
      entry.report.hash = HashState::kMismatch;
      add(entry.report.findings, Code::kHashMismatch,
          fmt::format("{}: expected {} by {}, found {}",
                      hash.kind == HashKind::kSha256 ? "SHA-256" : "Git blob", hash.hex,
                      hash.source, found[hash.kind]));
    }
  }

  void check_together() {
    WeightsCheck weights;
    for (std::size_t at = 0; at < repository_.entries.size(); ++at) {
      FileReport& file = repository_.entries[at].report;
      if (file.name == checkpoint::kShardIndexName)
        weights.set_index(file, std::move(facts_[at].index));
      if (kind_of(file.name) == FileKind::kSafetensors) {
        if (is_top_level(file.name))
          weights.add_shard(file, std::move(facts_[at].tensors));
        else if (file.findings.empty())
          add(file.findings, Code::kExtraShard, "in a subfolder, never read");
      }
      name_modules(file.name, facts_[at].modules);
    }
    weights.finish(repository_.findings);
    for (const char* name : {"config.json", "tokenizer.json"}) {
      if (entry_named(name) != nullptr) continue;
      add(repository_.findings, Code::kMissingFile,
          fmt::format("expected {}{}", name,
                      is_hub_repository() ? "; this is a hub cache's repository, name "
                                            "snapshots/REVISION in it"
                                          : ""),
          name);
    }
    if (!has_lock_) return;
    for (Entry& entry : repository_.entries) {
      const std::string& name = entry.report.name;
      const FileKind kind = kind_of(name);
      if (lock_.contains(name) || kind == FileKind::kLock || kind == FileKind::kHubMetadata)
        continue;
      add(entry.report.findings, Code::kNotInLock, fmt::format("not in {}", kLockName));
    }
  }

  bool is_hub_repository() const {
    return std::any_of(repository_.entries.begin(), repository_.entries.end(),
                       [](const Entry& e) { return e.report.name.starts_with("snapshots/"); });
  }

  // The files that an auto_map in `json` would have imported.
  void name_modules(const std::string& json, const std::vector<std::string>& modules) {
    const std::string folder = json.substr(0, json.rfind('/') + 1);
    for (const std::string& module : std::set<std::string>(modules.begin(), modules.end())) {
      Entry* entry = entry_named(folder + module);
      if (entry == nullptr) continue;
      std::vector<Finding>& findings = entry->report.findings;
      findings.insert(findings.begin(),
                      {Code::kAutoMap, severity_of(Code::kAutoMap),
                       fmt::format("{} asks the loader to run this file", quote(json)), ""});
    }
  }

  void allow(std::vector<Finding>& findings) const {
    for (Finding& finding : findings) {
      if (std::find(options_.allowed.begin(), options_.allowed.end(), finding.code) !=
          options_.allowed.end())
        finding.severity = Severity::kNote;
    }
  }

  const Options options_;
  Repository repository_;
  std::vector<FileFacts> facts_;  // of the entry at the same place
  std::map<std::string, std::size_t> place_of_;
  bool has_lock_ = false;
  LockFile lock_;
  std::map<std::string, std::vector<ExpectedHash>> expected_;
  std::int64_t to_hash_ = 0;
  std::atomic<std::int64_t> hashed_{0};
};

}  // namespace

Report audit(const std::string& path, const Options& options,
             const std::function<void(double)>& progress) {
  return Audit(path, options).run(progress);
}

}  // namespace nibble::audit
