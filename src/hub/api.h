// The hub's JSON interface: which commit a revision is, and which files it has.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "hub/http_client.h"
#include "hub/listing.h"
#include "hub/repo.h"
#include "hub/settings.h"
#include "nibble/status.h"

namespace nibble::hub {

struct RepoListing {
  RepoName repo;
  std::string commit;          // 40 hexadecimal digits
  std::vector<HubFile> files;  // sorted by path; checked together
};

// The hub could not be asked: not reachable, or overloaded for longer than we wait. What is in the cache may still do.
class HubUnreachable : public Error {
 public:
  using Error::Error;
};

// Thrown when ClientOptions::cancelled said so.
class Interrupted : public Error {
 public:
  Interrupted() : Error(ExitCode::kFailed, "interrupted") {}
};

// For a client of the hub that the settings name.
ClientOptions client_options(const Settings& settings, int stall_limit_s,
                             std::function<bool()> cancelled);

// Asks for the commit, then for its files page by page (at most 200 pages, all from the endpoint's host). Blocks. Throws
//   Error(kUsage)    no such repository or revision
//   HubUnreachable   no answer after `retries` more tries
//   Error(kFailed)   the repository needs a token, or another one
//   CheckpointError  an answer that is not what the interface promises, or names that may not be written to a disk
//   Interrupted
RepoListing list_repository(HttpClient& client, const RepoName& repo, int retries);

// The address that serves a file of a commit: ENDPOINT/OWNER/NAME/resolve/COMMIT/PATH.
Url file_url(const HttpClient& client, const std::string& repo_id, const std::string& commit,
             const std::string& path);

// Throws what a failed request for `what` (a file, a repository) means; see list_repository.
[[noreturn]] void throw_failure(const HttpClient& client, const RepoName& repo,
                                const std::string& what, const GetResult& result);

}  // namespace nibble::hub
