// Fetches files into the blobs of a cache: several requests at once, pieces of one file among them; each file verified
// before it gets its name.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "hub/cache.h"
#include "hub/http_client.h"
#include "hub/listing.h"

namespace nibble::hub {

struct DownloadOptions {
  int connections =
      8;  // requests at once, >= 1. Memory is 256 KiB a request, whatever the files' sizes.
  int retries =
      6;  // failures of one request in a row, without progress between them, before it is given up
};

// Called on the thread of download().
struct DownloadWatcher {
  std::function<void(std::int64_t bytes)>
      progress;  // of these files, on the disk; a few times a second
  std::function<void(const std::string& line)>
      note;  // something was started over; any thread, one at a time
};

// Blocks until every file is in the cache under its hash. Bytes that an earlier call left are resumed where the server still
// has the same entity tag; a file that changes while it is read is started over, three times at most. Throws
//   CheckpointError   a hash or a size that is not the listing's (the bytes of a wrong hash are removed)
//   Error(kFailed)    the disk, the network, the server; what has arrived is kept
//   HubUnreachable, Interrupted and the rest of throw_failure()
// After a throw the client is cancelled.
void download(HttpClient& client, const RepoCache& cache, const RepoName& repo,
              const std::string& commit, const std::vector<HubFile>& files,
              const DownloadOptions& options, const DownloadWatcher& watcher);

// Size of what an earlier download() left of a file, in bytes on the disk.
std::int64_t partial_bytes_on_disk(const RepoCache& cache, const HubFile& file);

}  // namespace nibble::hub
