#include "hub/download.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "checkpoint/quote.h"
#include "hub/api.h"
#include "hub/file_lock.h"
#include "hub/partial_file.h"
#include "hub/retry.h"
#include "nibble/status.h"

namespace nibble::hub {
namespace {

using checkpoint::quote;

constexpr std::int64_t kPiece_bytes = 32 << 20;
constexpr std::int64_t kNote_bytes = 4
                                     << 20;  // what a killed process loses of each request, at most
constexpr std::int64_t kProgress_bytes = 1 << 20;  // so much makes a failed request a step forward
constexpr int kMaxRestarts = 3;
constexpr std::chrono::milliseconds kTick{200};

// One go at a file. A restart makes a new one; requests that still run for the old one only touch the old one.
struct Attempt {
  std::unique_ptr<PartialFile> partial;
  std::deque<ByteRange> todo;  // pieces nobody has claimed
  int in_flight = 0;
  // The first request finds out whether the server knows ranges and has what we have; until then it is the only one.
  enum class State { kUntried, kTrying, kOpen } state = State::kUntried;
  std::atomic<std::int64_t> counted{0};  // bytes reported as progress
};

struct Job {
  const HubFile* file = nullptr;
  std::unique_ptr<FileLock> lock;
  std::shared_ptr<Attempt> attempt;
  std::optional<Url> resolved;  // where the hub's redirect led; asked again when it stops working
  int restarts = 0;
};

struct Claim {
  std::shared_ptr<Job> job;
  std::shared_ptr<Attempt> attempt;  // null: the job is not open yet
  ByteRange piece;
};

class Download {
 public:
  Download(HttpClient& client, const RepoCache& cache, const RepoName& repo,
           const std::string& commit, const std::vector<HubFile>& files,
           const DownloadOptions& options, const DownloadWatcher& watcher)
      : client_(client),
        cache_(cache),
        repo_(repo),
        commit_(commit),
        options_(options),
        watcher_(watcher),
        waiting_(files.size()) {
    for (const HubFile& file : files) pending_.push_back(&file);
  }

  void run() {
    {
      std::vector<std::jthread> workers;
      const auto count = std::min<std::size_t>(static_cast<std::size_t>(options_.connections),
                                               std::max<std::size_t>(pending_.size() * 64, 1));
      for (std::size_t i = 0; i < count; ++i) workers.emplace_back([this] { work(); });
      std::unique_lock lock(mutex_);
      while (waiting_ > 0 && !failure_) {
        changed_.wait_for(lock, kTick);
        report(lock);
      }
    }
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  void report(std::unique_lock<std::mutex>& lock) {
    if (!watcher_.progress) return;
    lock.unlock();
    watcher_.progress(bytes_.load());
    lock.lock();
  }

  void note(const std::string& line) {
    const std::lock_guard lock(note_mutex_);
    if (watcher_.note) watcher_.note(line);
  }

  bool stopped() const { return stop_.load() || client_.cancelled(); }

  void work() {
    std::unique_lock lock(mutex_);
    while (!stop_) {
      auto claim = next();
      if (!claim) {
        if (active_.empty() && pending_.empty()) return;
        changed_.wait(lock);
        continue;
      }
      lock.unlock();
      try {
        if (claim->attempt)
          fetch(*claim);
        else
          open(claim->job);
      } catch (...) {
        const std::lock_guard again(mutex_);
        if (!failure_) failure_ = std::current_exception();
        stop_ = true;
        client_.cancel();  // the other requests may hang for as long as the stall limit
      }
      lock.lock();
      changed_.notify_all();
    }
  }

  // With mutex_ held. Pieces of open files first, so that few files are open at a time.
  std::optional<Claim> next() {
    for (const auto& job : active_) {
      Attempt* attempt = job->attempt.get();
      if (!attempt || attempt->todo.empty() || attempt->state == Attempt::State::kTrying) continue;
      if (attempt->state == Attempt::State::kUntried) attempt->state = Attempt::State::kTrying;
      Claim claim{job, job->attempt, attempt->todo.front()};
      attempt->todo.pop_front();
      ++attempt->in_flight;
      return claim;
    }
    if (pending_.empty()) return std::nullopt;
    auto job = std::make_shared<Job>();
    job->file = pending_.front();
    pending_.pop_front();
    active_.push_back(job);
    return Claim{job, nullptr, {}};
  }

  void open(const std::shared_ptr<Job>& job) {
    const HubFile& file = *job->file;
    job->lock = std::make_unique<FileLock>(
        cache_.blob_lock(file.hash.hex()),
        [&] { note(fmt::format("{}: another program is writing it; waiting", file.path)); },
        [this] { return stopped(); });
    if (is_whole(file)) return done(job);  // that other program was faster
    if (const auto attempt = begin_attempt(job, PartialFile::Start::kResume)) finish(job, attempt);
  }

  bool is_whole(const HubFile& file) const {
    const std::filesystem::path blob = cache_.blob(file.hash.hex());
    std::error_code error;
    return std::filesystem::is_regular_file(blob, error) &&
           std::filesystem::file_size(blob, error) == static_cast<std::uintmax_t>(file.size) &&
           hash_file(blob, file.hash, file.size, [this] { return stopped(); }) == file.hash.hex();
  }

  void done(const std::shared_ptr<Job>& job) {
    const std::lock_guard lock(mutex_);
    job->lock.reset();
    std::erase(active_, job);
    --waiting_;
  }

  // Makes its pieces claimable. Returns the attempt when there are none: then nobody but the caller will finish the file.
  // (Asked before the pieces are claimable: afterwards others may have fetched them all.)
  std::shared_ptr<Attempt> begin_attempt(const std::shared_ptr<Job>& job,
                                         PartialFile::Start start) {
    auto attempt = std::make_shared<Attempt>();
    attempt->partial =
        std::make_unique<PartialFile>(cache_.blob(job->file->hash.hex()), job->file->size, start);
    for (const ByteRange piece : attempt->partial->missing(kPiece_bytes))
      attempt->todo.push_back(piece);
    count(*attempt, attempt->partial->present_bytes());
    const bool nothing_missing = attempt->todo.empty();
    const std::lock_guard lock(mutex_);
    job->attempt = attempt;
    return nothing_missing ? attempt : nullptr;
  }

  void count(Attempt& attempt, std::int64_t bytes) {
    attempt.counted += bytes;
    bytes_ += bytes;
  }

  // What we have is not what the server has: everything of this file again.
  void restart(const std::shared_ptr<Job>& job, const std::shared_ptr<Attempt>& attempt,
               const std::string& reason) {
    {
      const std::lock_guard lock(mutex_);
      if (job->attempt != attempt) return;  // somebody else has
      attempt->partial->abandoned = true;
      attempt->todo.clear();
      job->resolved.reset();
      bytes_ -= attempt->counted.load();
      if (++job->restarts > kMaxRestarts)
        throw Error(ExitCode::kFailed,
                    fmt::format("{}: {}: {}; started over {} times, giving up", repo_.text(),
                                quote(job->file->path), reason, kMaxRestarts));
    }
    note(fmt::format("{}: {}: starting over", job->file->path, reason));
    begin_attempt(job, PartialFile::Start::kAfresh);
  }

  void fetch(const Claim& claim);
  void settle(const Claim& claim);
  void finish(const std::shared_ptr<Job>& job, const std::shared_ptr<Attempt>& attempt);

  friend class PieceRequest;

  HttpClient& client_;
  const RepoCache& cache_;
  const RepoName& repo_;
  const std::string& commit_;
  const DownloadOptions options_;
  const DownloadWatcher& watcher_;

  std::atomic<std::int64_t> bytes_{0};
  std::atomic<bool> stop_{false};
  std::mutex note_mutex_;
  std::mutex mutex_;  // guards what follows, and every job and attempt
  std::condition_variable changed_;
  std::deque<const HubFile*> pending_;
  std::vector<std::shared_ptr<Job>> active_;
  std::size_t waiting_;  // files not finished
  std::exception_ptr failure_;
};

// One request for the rest of a piece, and the judgement of its answer.
class PieceRequest {
 public:
  PieceRequest(Download& download, const Claim& claim)
      : download_(download),
        job_(*claim.job),
        attempt_(*claim.attempt),
        file_(*claim.job->file),
        piece_(claim.piece),
        at_(claim.piece.begin),
        noted_(claim.piece.begin) {}

  bool complete() const { return at_ == piece_.end; }
  bool abandoned() const { return attempt_.partial->abandoned; }
  const std::string& restart_reason() const { return restart_reason_; }
  bool used_resolved() const { return used_resolved_; }
  std::int64_t received() const { return at_ - request_begin_; }

  GetResult send() {
    request_begin_ = at_;
    restart_reason_.clear();
    GetRequest request;
    {
      const std::lock_guard lock(download_.mutex_);
      used_resolved_ = job_.resolved.has_value();
      request.url = used_resolved_ ? *job_.resolved
                                   : file_url(download_.client_, download_.repo_.id,
                                              download_.commit_, file_.path);
    }
    request.range = ByteRange{at_, piece_.end};
    const std::string& etag = attempt_.partial->etag();
    if (!etag.starts_with("W/")) request.if_range = etag;
    request.max_body_bytes = kMaxFileBytes;
    request.on_head = [this](const ResponseHead& head) { return accept(head); };
    request.on_body = [this](std::span<const std::byte> bytes) { return take(bytes); };
    GetResult result = download_.client_.get(request);
    note_progress();
    return result;
  }

 private:
  [[noreturn]] void refuse(const std::string& problem) const {
    throw CheckpointError(
        fmt::format("{}: {}: {}", download_.repo_.text(), quote(file_.path), problem));
  }

  bool again(const std::string& reason) {
    restart_reason_ = reason;
    return false;
  }

  bool accept(const ResponseHead& head) {
    if (abandoned()) return false;
    if (head.status == 416) return again("the server no longer has that many bytes");
    if (head.status != 200 && head.status != 206) return false;  // judged by the caller
    check_link(head);
    const std::string etag = head.etag();
    const bool known = !attempt_.partial->etag().empty();
    if (head.status == 206) {
      const auto part = head.content_range();
      if (!part) refuse("the server answered 206 without a Content-Range that makes sense");
      if (part->total != file_.size)
        refuse(fmt::format("the hub's listing says {} bytes, the server has {}", file_.size,
                           part->total));
      if (part->range.begin != at_ || part->range.end > piece_.end)
        refuse(fmt::format("asked for bytes {}-{}, the server sends {}-{}", at_, piece_.end - 1,
                           part->range.begin, part->range.end - 1));
      if (known && etag != attempt_.partial->etag())
        return again(fmt::format("it changed on the server (entity tag {}, before {})", quote(etag),
                                 quote(attempt_.partial->etag())));
    } else {
      if (head.content_length() >= 0 && head.content_length() != file_.size)
        refuse(fmt::format("the hub's listing says {} bytes, the server sends {}", file_.size,
                           head.content_length()));
      if (at_ != 0 || known || attempt_.state == Attempt::State::kOpen)
        return again(known && etag != attempt_.partial->etag()
                         ? fmt::format("it changed on the server (entity tag {}, before {})",
                                       quote(etag), quote(attempt_.partial->etag()))
                         : "the server answered 200 to a range request");
      // No ranges here: this one request brings the file.
      piece_.end = file_.size;
    }
    open_attempt(head, etag, head.status == 200);
    return true;
  }

  // The redirect describes the file it leads to.
  void check_link(const ResponseHead& head) const {
    if (const std::string size = head.hub_header("x-linked-size");
        !size.empty() && size != std::to_string(file_.size))
      refuse(
          fmt::format("the hub's listing says {} bytes, its redirect {}", file_.size, quote(size)));
    std::string tag = head.hub_header("x-linked-etag");
    std::erase(tag, '"');
    if (is_hex(tag, 64) && !file_.hash.sha256.empty() && tag != file_.hash.sha256)
      refuse(fmt::format("the hub's listing says SHA-256 {}, its redirect {}", file_.hash.sha256,
                         tag));
  }

  void open_attempt(const ResponseHead& head, const std::string& etag, bool whole) {
    const std::lock_guard lock(download_.mutex_);
    if (head.url.text() !=
        file_url(download_.client_, download_.repo_.id, download_.commit_, file_.path).text())
      job_.resolved = head.url;
    if (attempt_.state == Attempt::State::kOpen) return;
    if (attempt_.partial->etag().empty()) attempt_.partial->begin(etag);
    if (whole) attempt_.todo.clear();
    attempt_.state = Attempt::State::kOpen;
    download_.changed_.notify_all();
  }

  bool take(std::span<const std::byte> bytes) {
    if (abandoned() || download_.stop_) return false;
    const auto size = static_cast<std::int64_t>(bytes.size());
    if (size > piece_.end - at_)
      refuse(fmt::format("the server sends more than the {} bytes asked for",
                         piece_.end - request_begin_));
    attempt_.partial->write(at_, bytes);
    at_ += size;
    download_.count(attempt_, size);
    if (at_ - noted_ >= kNote_bytes) note_progress();
    return true;
  }

  void note_progress() {
    attempt_.partial->note({noted_, at_});
    noted_ = at_;
  }

  Download& download_;
  Job& job_;
  Attempt& attempt_;
  const HubFile& file_;
  ByteRange piece_;
  std::int64_t at_;  // next byte
  std::int64_t noted_;
  std::int64_t request_begin_ = 0;
  bool used_resolved_ = false;
  std::string restart_reason_;
};

void Download::fetch(const Claim& claim) {
  PieceRequest request(*this, claim);
  Backoff backoff(client_, options_.retries);
  while (true) {
    GetResult result = request.send();
    if (request.abandoned()) return;
    if (request.complete()) return settle(claim);
    if (stopped()) throw Interrupted();
    if (!request.restart_reason().empty())
      return restart(claim.job, claim.attempt, request.restart_reason());
    if (request.received() >= kProgress_bytes) backoff.progress();
    const int status = result.head.status;
    if (result.outcome == GetOutcome::kComplete && (status == 200 || status == 206)) {
      result.outcome = GetOutcome::kBroken;
      result.problem = fmt::format("it ended after {} bytes", request.received());
    }
    // The address a redirect led to is signed for a while only.
    const bool expired = request.used_resolved() && status >= 400 && status < 500;
    if (request.used_resolved() && result.outcome != GetOutcome::kCancelled) {
      const std::lock_guard lock(mutex_);
      claim.job->resolved.reset();
    }
    if (status == 404 && !expired)
      throw Error(ExitCode::kFailed, fmt::format("{}: {}: the hub lists this file and answers 404",
                                                 repo_.text(), quote(claim.job->file->path)));
    if ((!expired && !worth_retrying(result)) || !backoff.wait(result)) {
      if (stopped()) throw Interrupted();
      throw_failure(client_, repo_, repo_.text() + ": " + quote(claim.job->file->path), result);
    }
  }
}

// A piece is there; with the last one the file is.
void Download::settle(const Claim& claim) {
  {
    const std::lock_guard lock(mutex_);
    --claim.attempt->in_flight;
    if (claim.job->attempt != claim.attempt || !claim.attempt->todo.empty() ||
        claim.attempt->in_flight > 0)
      return;
  }
  finish(claim.job, claim.attempt);
}

void Download::finish(const std::shared_ptr<Job>& job, const std::shared_ptr<Attempt>& attempt) {
  const HubFile& file = *job->file;
  const auto hash = attempt->partial->hash(file.hash, [this] { return stopped(); });
  if (!hash) throw Interrupted();
  const std::string& found = *hash;
  if (found != file.hash.hex()) {
    if (attempt->partial->resumed())
      return restart(job, attempt,
                     fmt::format("the resumed file has {} {}, expected {}", file.hash.name(), found,
                                 file.hash.hex()));
    attempt->partial->remove();
    throw CheckpointError(fmt::format("{}: {}: expected {} {}, found {}; the file was removed",
                                      repo_.text(), quote(file.path), file.hash.name(),
                                      file.hash.hex(), found));
  }
  attempt->partial->finish();
  done(job);
}

}  // namespace

void download(HttpClient& client, const RepoCache& cache, const RepoName& repo,
              const std::string& commit, const std::vector<HubFile>& files,
              const DownloadOptions& options, const DownloadWatcher& watcher) {
  std::error_code error;
  const std::filesystem::path blobs = cache.root() / "blobs";
  std::filesystem::create_directories(blobs, error);
  if (error) throw Error(ExitCode::kFailed, fmt::format("{}: {}", blobs.string(), error.message()));
  Download(client, cache, repo, commit, files, options, watcher).run();
}

std::int64_t partial_bytes_on_disk(const RepoCache& cache, const HubFile& file) {
  struct stat info {};
  const std::string path = cache.blob(file.hash.hex()).string() + ".nibble-incomplete";
  return lstat(path.c_str(), &info) == 0 ? std::int64_t{info.st_blocks} * 512 : 0;
}

}  // namespace nibble::hub
