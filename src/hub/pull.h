// A repository into the hub cache: whole, verified, or an error that says what is missing.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "hub/api.h"
#include "hub/download.h"
#include "hub/selection.h"
#include "hub/settings.h"

namespace nibble::hub {

struct PullOptions {
  Selection selection;
  DownloadOptions download;
  int stall_limit_s = 30;
  bool dry_run = false;  // list, check the space, fetch nothing
};

struct PullPlan {
  RepoListing listing;
  std::vector<HubFile> selected;
  std::vector<HubFile> missing;   // of those, what is not in the cache yet
  std::int64_t needed_bytes = 0;  // on the disk, besides what is there
  std::int64_t free_bytes = 0;
};

// plan and progress are called on the thread of pull(); note from any thread, one call at a time.
struct PullWatcher {
  // Before the first byte, and before the space is judged.
  std::function<void(const PullPlan& plan)> plan;
  // Of plan.missing.
  std::function<void(std::int64_t done_bytes, std::int64_t total_bytes)> progress;
  std::function<void(const std::string& line)> note;
  std::function<bool()> cancelled;
};

struct PullResult {
  std::filesystem::path snapshot;
  std::string commit;
  bool asked_hub = true;  // false: from the cache alone, and what follows is 0
  std::size_t files = 0;  // of this selection, all verified
  std::int64_t bytes = 0;
  std::size_t fetched_files = 0;
};

// Blocks. One pull of a repository at a time: another process waits. Order on the disk: blobs, links, lock file, refs; a
// revision therefore names a snapshot that is whole. Without network (Settings::offline, a hub that does not answer) a
// snapshot that an earlier pull finished is as good. Throws what list_repository() and download() throw, and Error(kFailed)
// when the disk is too small, with what is missing and what could be deleted.
PullResult pull(const Settings& settings, const RepoName& repo, const PullOptions& options,
                const PullWatcher& watcher);

// "159.61 GB", "22.1 MB", "917 bytes".
std::string bytes_text(std::int64_t bytes);

}  // namespace nibble::hub
