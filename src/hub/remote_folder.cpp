#include "hub/remote_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "checkpoint/quote.h"
#include "checkpoint/safetensors.h"
#include "hub/http_client.h"
#include "hub/retry.h"
#include "hub/selection.h"
#include "nibble/status.h"

namespace nibble::hub {
namespace {

using checkpoint::quote;

constexpr std::int64_t kReadAhead_bytes = 256 << 10;
constexpr std::int64_t kWholeFile_bytes = 4 << 20;
constexpr std::int64_t kMemory_bytes = 128 << 20;
constexpr std::int64_t kLengthBytes = 8;  // a safetensors file begins with its header's length

// What all files of a repository share.
struct Remote {
  Remote(const Settings& settings, const RemoteOptions& chosen)
      : client(client_options(settings, chosen.stall_limit_s, nullptr)), options(chosen) {}

  HttpClient client;
  RemoteOptions options;
  RepoListing listing;
  std::atomic<std::int64_t> kept_bytes{0};  // in the files' prefixes
};

// One file. Its first bytes are kept once they were fetched; what lies behind them is fetched as asked for.
class RemoteFile {
 public:
  RemoteFile(Remote& remote, const HubFile& file) : remote_(remote), file_(file) {}

  const HubFile& file() const { return file_; }

  // Callable from several threads. The prefix grows one request at a time; what lies behind it is asked for side by side.
  void read(std::int64_t offset, std::span<std::byte> out) {
    {
      const std::lock_guard lock(mutex_);
      const auto size = static_cast<std::int64_t>(out.size());
      if (offset == kept() && kept() < file_.size) read_ahead(size);
      if (offset < kept()) {
        const std::int64_t known = std::min(size, kept() - offset);
        std::memcpy(out.data(), prefix_.data() + offset, static_cast<std::size_t>(known));
        out = out.subspan(static_cast<std::size_t>(known));
        offset += known;
      }
    }
    if (!out.empty()) fetch({offset, offset + static_cast<std::int64_t>(out.size())}, out);
  }

  // The whole header of a safetensors file, if it is of a size to be kept.
  void read_header_ahead() {
    const std::lock_guard lock(mutex_);
    if (kept() > 0) return;
    read_ahead(kLengthBytes);
    if (kept() < kLengthBytes) return;
    std::uint64_t length = 0;
    for (int i = kLengthBytes - 1; i >= 0; --i)
      length = length << 8 | std::to_integer<std::uint64_t>(prefix_[static_cast<std::size_t>(i)]);
    if (length > static_cast<std::uint64_t>(checkpoint::kMaxHeaderBytes)) return;
    const std::int64_t end = kLengthBytes + static_cast<std::int64_t>(length);
    if (end > kept() && end <= file_.size) read_ahead(end - kept());
  }

 private:
  std::int64_t kept() const { return static_cast<std::int64_t>(prefix_.size()); }

  // Makes the prefix longer by at least `wanted` bytes, if the memory is there.
  void read_ahead(std::int64_t wanted) {
    const bool weights = file_.path.ends_with(".safetensors");
    const std::int64_t first =
        !weights && file_.size <= kWholeFile_bytes ? file_.size : kReadAhead_bytes;
    const std::int64_t grow =
        std::min(kept() == 0 ? std::max(wanted, first) : wanted, file_.size - kept());
    if (remote_.kept_bytes.fetch_add(grow) + grow > kMemory_bytes) {
      remote_.kept_bytes -= grow;
      return;
    }
    std::vector<std::byte> bytes(static_cast<std::size_t>(grow));
    try {
      fetch({kept(), kept() + grow}, bytes);
      if (grow == file_.size) check_hash(bytes);
    } catch (...) {
      remote_.kept_bytes -= grow;
      throw;
    }
    prefix_.insert(prefix_.end(), bytes.begin(), bytes.end());
  }

  void check_hash(std::span<const std::byte> bytes) const {
    Hasher hasher(file_.hash, file_.size);
    hasher.add(bytes);
    if (const std::string found = hasher.hex(); found != file_.hash.hex())
      refuse(fmt::format("expected {} {}, found {}", file_.hash.name(), file_.hash.hex(), found));
  }

  [[noreturn]] void refuse(const std::string& problem) const {
    throw CheckpointError(fmt::format("{}: {}", where(), problem));
  }

  std::string where() const { return remote_.listing.repo.text() + "/" + file_.path; }

  void fetch(ByteRange range, std::span<std::byte> out) {
    Backoff backoff(remote_.client, remote_.options.retries);
    const bool whole = range == ByteRange{0, file_.size};
    std::int64_t at = 0;
    GetRequest request;
    request.url =
        file_url(remote_.client, remote_.listing.repo.id, remote_.listing.commit, file_.path);
    request.max_body_bytes = kMaxFileBytes;
    request.on_head = [&](const ResponseHead& head) {
      at = 0;
      if (head.status != 200 && head.status != 206) return false;
      check_head(head, range, whole);
      return true;
    };
    request.on_body = [&](std::span<const std::byte> bytes) {
      const auto size = static_cast<std::int64_t>(bytes.size());
      if (size > range.size() - at) refuse("the server sends more bytes than were asked for");
      std::memcpy(out.data() + at, bytes.data(), bytes.size());
      at += size;
      return true;
    };
    if (!whole) request.range = range;
    while (true) {
      GetResult result = remote_.client.get(request);
      if (at == range.size() && (result.head.status == 200 || result.head.status == 206)) return;
      if (result.outcome == GetOutcome::kComplete &&
          (result.head.status == 200 || result.head.status == 206)) {
        result.outcome = GetOutcome::kBroken;
        result.problem = fmt::format("it ended after {} of {} bytes", at, range.size());
      }
      if (!worth_retrying(result) || !backoff.wait(result))
        throw_failure(remote_.client, remote_.listing.repo, where(), result);
    }
  }

  void check_head(const ResponseHead& head, ByteRange range, bool whole) {
    if (!whole && head.status == 200)
      refuse(
          fmt::format("{} answers a range request with 200, expected 206: its files cannot be "
                      "inspected without a download (nibble pull {})",
                      head.url.origin(), remote_.listing.repo.text()));
    const std::int64_t length = head.content_length();
    if (head.status == 200 && length >= 0 && length != file_.size)
      refuse(
          fmt::format("the hub's listing says {} bytes, the server sends {}", file_.size, length));
    if (head.status == 206) {
      const auto part = head.content_range();
      if (!part || part->range != range)
        refuse(fmt::format("asked for bytes {}-{}, the server sends {}", range.begin, range.end - 1,
                           quote(head.header("content-range"))));
      if (part->total != file_.size)
        refuse(fmt::format("the hub's listing says {} bytes, the server has {}", file_.size,
                           part->total));
    }
    const std::string etag = head.etag();
    const std::lock_guard lock(etag_mutex_);
    if (!etag_.empty() && etag != etag_)
      refuse(fmt::format("it changed while it was read (entity tag {}, before {})", quote(etag),
                         quote(etag_)));
    etag_ = etag;
  }

  Remote& remote_;
  const HubFile& file_;
  std::mutex mutex_;
  std::vector<std::byte> prefix_;  // bytes [0, prefix_.size()) of the file; under mutex_
  std::mutex etag_mutex_;          // taken inside mutex_
  std::string etag_;               // under etag_mutex_
};

class RemoteSource final : public checkpoint::ByteSource {
 public:
  // `owner` keeps the file alive.
  RemoteSource(std::shared_ptr<const void> owner, RemoteFile& file)
      : owner_(std::move(owner)), file_(file) {}
  void read_at(std::int64_t offset, std::span<std::byte> out) const override {
    file_.read(offset, out);
  }

 private:
  std::shared_ptr<const void> owner_;
  RemoteFile& file_;
};

class RemoteFolder final : public checkpoint::FolderBackend,
                           public std::enable_shared_from_this<RemoteFolder> {
 public:
  RemoteFolder(const Settings& settings, const RepoName& repo, const RemoteOptions& options)
      : remote_(settings, options) {
    remote_.listing = list_repository(remote_.client, repo, options.retries);
    for (const HubFile& file : remote_.listing.files)
      if (!checkpoint::plain_name_problem(file.path))
        files_.emplace(file.path, std::make_unique<RemoteFile>(remote_, file));
  }

  const RepoListing& listing() const { return remote_.listing; }

  bool has(const std::string& name) const override { return files_.contains(name); }

  std::vector<std::string> list() const override {
    std::vector<std::string> names;
    for (const auto& [name, file] : files_) names.push_back(name);
    return names;
  }

  checkpoint::File open(const std::string& name, std::string path) const override {
    const auto found = files_.find(name);
    if (found == files_.end())
      throw CheckpointError(fmt::format("{}: no such file in the repository", path));
    if (name.ends_with(".safetensors")) std::call_once(headers_once_, [this] { read_headers(); });
    return {std::make_unique<RemoteSource>(shared_from_this(), *found->second), std::move(path),
            found->second->file().size};
  }

 private:
  // Failures are left to the read that needs the bytes: it says which file it is.
  void read_headers() const {
    std::vector<RemoteFile*> shards;
    for (const auto& [name, file] : files_)
      if (name.ends_with(".safetensors")) shards.push_back(file.get());
    std::atomic<std::size_t> next{0};
    std::atomic<bool> failed{false};
    const auto work = [&] {
      for (std::size_t i = next++; i < shards.size() && !failed; i = next++) {
        try {
          shards[i]->read_header_ahead();
        } catch (const std::exception&) {
          failed = true;
        }
      }
    };
    std::vector<std::jthread> workers;
    const auto count =
        std::min(shards.size(), static_cast<std::size_t>(remote_.options.connections));
    for (std::size_t i = 0; i < count; ++i) workers.emplace_back(work);
  }

  mutable Remote remote_;
  std::unordered_map<std::string, std::unique_ptr<RemoteFile>> files_;
  mutable std::once_flag headers_once_;
};

}  // namespace

RemoteModel open_remote_model(const Settings& settings, const RepoName& repo,
                              const RemoteOptions& options) {
  if (settings.offline)
    throw Error(ExitCode::kFailed,
                fmt::format("{}: not in the cache ({}), and HF_HUB_OFFLINE is set", repo.text(),
                            settings.cache.string()));
  auto backend = std::make_shared<RemoteFolder>(settings, repo, options);
  RepoListing listing = backend->listing();
  const std::int64_t bytes = total_bytes(select({}, listing.files));
  return {checkpoint::Folder(repo.text(), std::move(backend)), std::move(listing), bytes};
}

checkpoint::Folder open_remote(const std::string& repo, const std::string& revision) {
  const auto name = parse_repo_name(repo + "@" + revision);
  if (!name)
    throw Error(ExitCode::kUsage,
                fmt::format("{} at revision {}: expected OWNER/NAME", checkpoint::quote(repo),
                            checkpoint::quote(revision)));
  return open_remote_model(settings_from_environment(), *name).folder;
}

}  // namespace nibble::hub
