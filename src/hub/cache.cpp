#include "hub/cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "nibble/status.h"

namespace nibble::hub {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& path, const std::string& problem) {
  throw Error(ExitCode::kFailed, fmt::format("{}: {}", path.string(), problem));
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail(folder, error.message());
}

std::int64_t bytes_on_disk(const fs::path& path) {
  struct stat info {};
  return lstat(path.c_str(), &info) == 0 ? std::int64_t{info.st_blocks} * 512 : 0;
}

std::int64_t bytes_below(const fs::path& folder) {
  std::int64_t bytes = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error))
    bytes += bytes_on_disk(it->path());
  return bytes;
}

// "models--OWNER--NAME" -> "OWNER/NAME", other kinds with their kind before it; "" when the folder is not a repository.
std::string repository_of(const std::string& folder) {
  for (const std::string_view kind : {"models", "datasets", "spaces"}) {
    if (!folder.starts_with(fmt::format("{}--", kind))) continue;
    const std::string name = folder.substr(kind.size() + 2);
    const auto place = name.find("--");
    const std::string id = place == std::string::npos ? name
                                                      : fmt::format("{}/{}", name.substr(0, place),
                                                                    name.substr(place + 2));
    return kind == "models" ? id : fmt::format("{} {}", kind, id);
  }
  return {};
}

}  // namespace

RepoCache::RepoCache(fs::path cache, const RepoName& repo)
    : cache_(std::move(cache)), repo_(repo) {}

fs::path RepoCache::blob_lock(const std::string& hash) const {
  return cache_ / ".locks" / repo_.folder() / (hash + ".lock");
}

fs::path RepoCache::pull_lock() const {
  return cache_ / ".locks" / repo_.folder() / "nibble-pull.lock";
}

std::optional<std::string> RepoCache::cached_commit() const {
  std::ifstream file(ref());
  std::string commit;
  // A refs file written by another tool may name anything; as one component of a path it must stay harmless.
  if (file >> commit && commit.find('/') == std::string::npos && commit[0] != '.') return commit;
  std::error_code error;
  if (is_commit(repo_.revision) && fs::is_directory(snapshot(repo_.revision), error))
    return repo_.revision;
  return std::nullopt;
}

std::optional<fs::path> RepoCache::cached_snapshot() const {
  const auto commit = cached_commit();
  std::error_code error;
  if (!commit || !fs::is_directory(snapshot(*commit), error)) return std::nullopt;
  return snapshot(*commit);
}

void RepoCache::link(const std::string& commit, const std::string& path,
                     const std::string& hash) const {
  const fs::path place = snapshot(commit) / path;
  make_folder(place.parent_path());
  // snapshots/COMMIT/a/b: two levels up, and one for each folder of the path.
  fs::path target = "../../blobs";
  for (const char c : path)
    if (c == '/') target = ".." / target;
  target /= hash;
  std::error_code error;
  if (fs::read_symlink(place, error) == target) return;
  const fs::path temporary = place.string() + ".nibble-link";
  fs::remove(temporary, error);
  fs::create_symlink(target, temporary, error);
  if (!error) fs::rename(temporary, place, error);
  if (error) fail(place, error.message());
}

void RepoCache::write_ref(const std::string& commit) const {
  if (repo_.revision == commit) return;
  make_folder(ref().parent_path());
  write_file_whole(ref(), commit);
}

void write_file_whole(const fs::path& path, const std::string& text) {
  const std::string temporary = path.string() + ".nibble-new";
  const int fd =
      open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (fd < 0) fail(temporary, std::strerror(errno));
  std::string_view rest = text;
  int error = 0;
  while (!rest.empty() && error == 0) {
    const ssize_t written = write(fd, rest.data(), rest.size());
    if (written < 0 && errno != EINTR) error = errno;
    if (written > 0) rest.remove_prefix(static_cast<std::size_t>(written));
  }
  if (error == 0 && fsync(fd) != 0) error = errno;
  if (close(fd) != 0 && error == 0) error = errno;
  if (error == 0 && rename(temporary.c_str(), path.c_str()) != 0) error = errno;
  if (error == 0) return flush_folder(path.parent_path());
  unlink(temporary.c_str());
  fail(path, std::strerror(error));
}

void flush_folder(const fs::path& folder) {
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  fsync(fd);
  close(fd);
}

std::int64_t free_bytes(const fs::path& path) {
  fs::path place = fs::absolute(path);
  std::error_code error;
  while (!fs::exists(place, error) && place.has_relative_path()) place = place.parent_path();
  struct statvfs info {};
  if (statvfs(place.c_str(), &info) != 0) fail(place, std::strerror(errno));
  return static_cast<std::int64_t>(info.f_bavail) * static_cast<std::int64_t>(info.f_frsize);
}

std::vector<Removable> removable(const RepoCache& cache, const std::vector<std::string>& keep) {
  std::vector<Removable> found;
  std::error_code error;
  for (fs::directory_iterator it(cache.cache(), error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = repository_of(it->path().filename().string());
    if (name.empty()) continue;
    if (it->path() != cache.root()) {
      found.push_back({it->path(), name, bytes_below(it->path())});
      continue;
    }
    Removable others{cache.root() / "blobs", name + ": files of other revisions", 0};
    std::error_code unread;
    for (fs::directory_iterator blob(others.path, unread), last; !unread && blob != last;
         blob.increment(unread)) {
      const std::string hash = blob->path().stem().string();  // without ".nibble-incomplete"
      if (std::find(keep.begin(), keep.end(), hash) == keep.end())
        others.bytes += bytes_on_disk(blob->path());
    }
    found.push_back(std::move(others));
  }
  std::erase_if(found, [](const Removable& one) { return one.bytes == 0; });
  std::sort(found.begin(), found.end(),
            [](const Removable& a, const Removable& b) { return a.bytes > b.bytes; });
  return found;
}

}  // namespace nibble::hub
