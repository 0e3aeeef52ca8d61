// A repository of the hub as a checkpoint folder, read over HTTP range requests: its headers and small files can be
// inspected before anything is downloaded.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "checkpoint/folder.h"
#include "hub/api.h"
#include "hub/settings.h"

namespace nibble::hub {

struct RemoteOptions {
  int connections = 16;  // at once, while headers are read ahead
  int retries = 4;
  int stall_limit_s = 20;
};

struct RemoteModel {
  checkpoint::Folder folder;
  RepoListing listing;
  std::int64_t pull_bytes = 0;  // what `nibble pull` would fetch with an empty cache
};

// Asks for the listing at once, for a file's bytes when they are read. The folder has the files directly in the repository
// (names with a slash are not the folder's). Memory: at most 128 MB of read-ahead.
//   *.safetensors   with the first of them that is opened, the headers of all are fetched side by side: one request each for
//                   the first 256 KiB, a second one for the rest of a longer header
//   other files     one request for a file of up to 4 MiB, whose hash is then checked; ranges of larger ones as asked for
// A server that answers a range request with 200 is refused before its body is read, and so is a file whose entity tag
// changes between two requests. Reading throws CheckpointError for what the server sends, Error(kFailed) or HubUnreachable
// for the network; open_remote throws what list_repository() throws, and Error(kFailed) when Settings::offline.
RemoteModel open_remote_model(const Settings& settings, const RepoName& repo,
                              const RemoteOptions& options = {});

// The same with the environment's settings; the folder alone. `repo` is OWNER/NAME. Throws Error(kUsage) for another form.
checkpoint::Folder open_remote(const std::string& repo, const std::string& revision);

}  // namespace nibble::hub
