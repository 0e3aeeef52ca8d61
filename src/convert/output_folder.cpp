#include "convert/output_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "nibble/status.h"

namespace nibble::convert {
namespace {

namespace fs = std::filesystem;

// Both without links and trailing slashes.
bool lies_in(const fs::path& path, const fs::path& folder) {
  const auto [end, ignored] = std::mismatch(folder.begin(), folder.end(), path.begin(), path.end());
  return end == folder.end();
}

void sync_folder(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  fsync(fd);  // some file systems cannot; the files themselves are on the disk
  close(fd);
}

}  // namespace

OutputFolder::OutputFolder(const std::string& path, const std::string& source) {
  if (path.empty()) throw Error(ExitCode::kUsage, "the destination is empty");
  std::error_code error;
  fs::path whole = fs::weakly_canonical(fs::absolute(path), error);
  if (error) throw Error(ExitCode::kUsage, fmt::format("{}: {}", path, error.message()));
  if (whole.filename().empty()) whole = whole.parent_path();  // "out/"
  const fs::path from = fs::canonical(source, error);
  if (error) throw Error(ExitCode::kUsage, fmt::format("{}: {}", source, error.message()));
  if (lies_in(whole, from) || lies_in(from, whole))
    throw Error(ExitCode::kUsage, fmt::format("{}: expected a folder apart from the source, {}",
                                              path, from.string()));
  if (!fs::is_directory(whole.parent_path(), error))
    throw Error(ExitCode::kUsage,
                fmt::format("{}: expected a folder to put it in, found none at {}", path,
                            whole.parent_path().string()));
  if (fs::exists(whole, error)) {
    if (!fs::is_directory(whole, error))
      throw Error(ExitCode::kUsage, fmt::format("{}: expected no such file yet", path));
    if (!fs::is_empty(whole, error) || error)
      throw Error(ExitCode::kUsage,
                  fmt::format("{}: expected an empty folder or none, found files in it", path));
  }
  path_ = whole.string();
  partial_ = path_ + ".partial";
}

OutputFolder::~OutputFolder() {
  std::error_code ignored;
  if (created_) fs::remove_all(partial_, ignored);
}

void OutputFolder::require_space(std::int64_t bytes) const {
  struct statvfs info {};
  const std::string parent = fs::path(path_).parent_path().string();
  if (statvfs(parent.c_str(), &info) != 0)
    throw Error(ExitCode::kFailed, fmt::format("{}: {}", parent, std::strerror(errno)));
  const auto free =
      static_cast<std::int64_t>(info.f_bavail) * static_cast<std::int64_t>(info.f_frsize);
  if (free >= bytes) return;
  throw Error(ExitCode::kFailed,
              fmt::format("{}: the result needs {} bytes, the disk has {} free: {} are missing",
                          path_, bytes, free, bytes - free));
}

void OutputFolder::create() {
  if (mkdir(partial_.c_str(), 0755) == 0) {
    created_ = true;
    return;
  }
  if (errno == EEXIST)
    throw Error(ExitCode::kFailed,
                fmt::format("{}: expected no such folder: another conversion is writing it, or one "
                            "was killed; then delete it",
                            partial_));
  throw Error(ExitCode::kFailed, fmt::format("{}: {}", partial_, std::strerror(errno)));
}

void OutputFolder::commit() {
  sync_folder(partial_);
  // Takes the place of an empty folder; a full one, or a file, that came meanwhile is an error.
  if (std::rename(partial_.c_str(), path_.c_str()) != 0)
    throw Error(ExitCode::kFailed, fmt::format("{}: cannot be renamed to {}: {}", partial_, path_,
                                               std::strerror(errno)));
  created_ = false;
  sync_folder(fs::path(path_).parent_path().string());
}

}  // namespace nibble::convert
