#include "hub/api.h"

#include <fmt/format.h>

#include <utility>

#include "checkpoint/quote.h"
#include "hub/retry.h"

namespace nibble::hub {
namespace {

constexpr int kMaxPages = 200;
constexpr int kAnswerLimit_s = 120;

Url api_url(const HttpClient& client, const std::string& target) {
  Url url = client.endpoint();
  url.target += target;
  return url;
}

GetResult ask(HttpClient& client, const RepoName& repo, const Url& url, int retries) {
  Backoff backoff(client, retries);
  GetRequest request;
  request.url = url;
  request.max_body_bytes = kMaxListingBytes;
  request.total_timeout_s = kAnswerLimit_s;
  while (true) {
    GetResult result = client.get(request);
    if (result.outcome == GetOutcome::kComplete && result.head.status == 200) return result;
    if (result.outcome == GetOutcome::kTooLong)
      throw CheckpointError(fmt::format("{}: the hub's answer is longer than {} bytes", url.text(),
                                        kMaxListingBytes));
    if (!worth_retrying(result) || !backoff.wait(result))
      throw_failure(client, repo, repo.text(), result);
  }
}

}  // namespace

ClientOptions client_options(const Settings& settings, int stall_limit_s,
                             std::function<bool()> cancelled) {
  ClientOptions options;
  options.endpoint = settings.endpoint;
  options.token = settings.token;
  options.ca_file = settings.ca_file;
  options.stall_limit_s = stall_limit_s;
  options.cancelled = std::move(cancelled);
  return options;
}

RepoListing list_repository(HttpClient& client, const RepoName& repo, int retries) {
  RepoListing listing{repo, repo.revision, {}};
  const std::string base = "/api/models/" + repo.id;
  // Also for a commit: it tells a repository that is not there from one without files.
  Url url = api_url(client, base + "/revision/" + percent_encode(repo.revision, false));
  listing.commit = parse_commit(url.text(), ask(client, repo, url, retries).body);
  if (is_commit(repo.revision) && listing.commit != repo.revision)
    throw CheckpointError(fmt::format("{}: asked for commit {}, the hub answers with {}",
                                      url.text(), repo.revision, listing.commit));

  url = api_url(client, base + "/tree/" + listing.commit + "?recursive=true");
  for (int page = 0;; ++page) {
    if (page == kMaxPages)
      throw CheckpointError(fmt::format("{}: more than {} pages", url.text(), kMaxPages));
    const GetResult result = ask(client, repo, url, retries);
    parse_tree_page(url.text(), result.body, listing.files);
    const std::string next = next_link(result.head.header("link"));
    if (next.empty()) break;
    const auto target = resolve_url(result.head.url, next);
    if (!target || target->origin() != client.endpoint().origin())
      throw CheckpointError(fmt::format("{}: the next page is at {}, expected it at {}", url.text(),
                                        checkpoint::quote(next), client.endpoint().origin()));
    url = *target;
  }
  check_paths_together(repo.text(), listing.files);
  return listing;
}

Url file_url(const HttpClient& client, const std::string& repo_id, const std::string& commit,
             const std::string& path) {
  return api_url(client,
                 fmt::format("/{}/resolve/{}/{}", repo_id, commit, percent_encode(path, true)));
}

void throw_failure(const HttpClient& client, const RepoName& repo, const std::string& what,
                   const GetResult& result) {
  if (result.outcome == GetOutcome::kCancelled || client.cancelled()) throw Interrupted();
  const std::string host = client.endpoint().origin();
  if (worth_retrying(result))
    throw HubUnreachable(ExitCode::kFailed,
                         fmt::format("{}: {}: {}", what, host, describe(result)));
  const std::string code = result.head.hub_header("x-error-code");
  const int status = result.head.status;
  if (status == 404 || code == "RepoNotFound" || code == "RevisionNotFound") {
    const bool revision = code == "RevisionNotFound";
    throw Error(ExitCode::kUsage,
                fmt::format("{}: no such {} at {}{}", what,
                            revision ? "revision" : "repository or revision", host,
                            revision ? "" : "; a private one needs a token in HF_TOKEN"));
  }
  if (status == 401 || status == 403)
    throw Error(ExitCode::kFailed,
                fmt::format("{}: {} answered {}: the repository is private or gated. Accept its "
                            "terms at {}/{} and set HF_TOKEN to a token that may read it",
                            what, host, status, host, repo.id));
  throw Error(ExitCode::kFailed, fmt::format("{}: {} {}", what, host, describe(result)));
}

}  // namespace nibble::hub
