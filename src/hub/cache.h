// The hub cache on disk, as every tool of the hub lays it out:
//   CACHE/models--OWNER--NAME/blobs/HASH                    SHA-256 of a large file, git blob id of a small one
//                             refs/REVISION                 text: the commit
//                             snapshots/COMMIT/PATH         a relative link to ../../blobs/HASH
// and three things of our own, which the others ignore:
//   snapshots/COMMIT/nibble.lock.json   what was verified (lock_file.h)
//   blobs/HASH.nibble-incomplete        a download that is not finished (partial_file.h)
//   blobs/HASH.nibble-parts             which of its bytes are there
// The other tools take a HASH.incomplete of the full size for a finished file; ours has holes, hence the other name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "hub/repo.h"

namespace nibble::hub {

inline constexpr const char* kLockFileName = "nibble.lock.json";

// Where things of one repository are. Touches no disk but in the functions that say so.
class RepoCache {
 public:
  RepoCache(std::filesystem::path cache, const RepoName& repo);

  const std::filesystem::path& cache() const { return cache_; }
  std::filesystem::path root() const { return cache_ / repo_.folder(); }
  std::filesystem::path blob(const std::string& hash) const { return root() / "blobs" / hash; }
  std::filesystem::path snapshot(const std::string& commit) const {
    return root() / "snapshots" / commit;
  }
  std::filesystem::path ref() const { return root() / "refs" / repo_.revision; }
  // The lock that tools of the hub take while they write this blob.
  std::filesystem::path blob_lock(const std::string& hash) const;
  std::filesystem::path pull_lock() const;

  // Reads: the commit that the revision names, by its refs file or by being one whose snapshot is there.
  std::optional<std::string> cached_commit() const;
  // Reads: the snapshot folder of cached_commit(), when it is a folder.
  std::optional<std::filesystem::path> cached_snapshot() const;

  // Writes: PATH of the snapshot as a link to the blob, replacing what is there. Throws Error(kFailed).
  void link(const std::string& commit, const std::string& path, const std::string& hash) const;
  // Writes: the refs file (none when the revision is the commit). Throws Error(kFailed).
  void write_ref(const std::string& commit) const;

 private:
  std::filesystem::path cache_;
  RepoName repo_;
};

// Writes a file under a temporary name beside `path`, flushes it to the disk and renames it. Throws Error(kFailed).
void write_file_whole(const std::filesystem::path& path, const std::string& text);

// A rename is on the disk once its folder is. Says nothing of failures: not every file system can.
void flush_folder(const std::filesystem::path& folder);

// Bytes a user may have on the file system that holds `path` or its nearest ancestor that exists.
std::int64_t free_bytes(const std::filesystem::path& path);

// Something in the cache that could be deleted to make room.
struct Removable {
  std::filesystem::path path;
  std::string what;        // "OWNER/NAME", "OWNER/NAME: files of other revisions"
  std::int64_t bytes = 0;  // on the disk
};

// The other repositories of the cache and this one's blobs that are not in `keep` (their file names), largest first.
std::vector<Removable> removable(const RepoCache& cache, const std::vector<std::string>& keep);

}  // namespace nibble::hub
