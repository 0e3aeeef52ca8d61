#include "checkpoint/folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "checkpoint/quote.h"
#include "nibble/status.h"

namespace nibble::checkpoint {
namespace fs = std::filesystem;
namespace {

// A pipe or terminal named like a shard must neither block the open nor become the controlling
// terminal.
constexpr int kOpenFlags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;

std::string system_message(int error) {
  return std::strerror(error);
}

}  // namespace

File::File(int fd, std::string path) : fd_(fd), path_(std::move(path)) {
  struct stat info {};
  const bool known = fstat(fd_, &info) == 0;
  const int error = errno;
  if (known && S_ISREG(info.st_mode)) {
    size_ = info.st_size;
    return;
  }
  close(fd_);
  if (!known) throw CheckpointError(fmt::format("{}: {}", path_, system_message(error)));
  throw CheckpointError(fmt::format("{}: expected a regular file, found {}", path_,
                                    S_ISDIR(info.st_mode) ? "a folder" : "a pipe or device"));
}

File::~File() {
  if (fd_ >= 0) close(fd_);
}

File::File(File&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)), size_(other.size_) {}

File& File::operator=(File&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(path_, other.path_);
  std::swap(size_, other.size_);
  return *this;
}

void File::read_at(std::int64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t got = pread(fd_, out.data(), out.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      throw CheckpointError(fmt::format("{}: cannot read {} bytes at offset {}: {}", path_,
                                        out.size(), offset, system_message(errno)));
    }
    if (got == 0) {
      throw CheckpointError(
          fmt::format("{}: the file ends at byte {}, {} bytes short", path_, offset, out.size()));
    }
    out = out.subspan(static_cast<std::size_t>(got));
    offset += got;
  }
}

std::optional<std::string> plain_name_problem(std::string_view name) {
  if (name.empty()) return "is empty";
  if (name == "." || name == "..") return "is not a file name";
  if (name.size() > 255) return "is longer than 255 characters";
  for (const char c : name) {
    if (c == '/') return "contains a slash";
    if (c == '\\') return "contains a backslash";
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) return "contains a control character";
  }
  return std::nullopt;
}

Folder::Folder(std::string path) : path_(std::move(path)) {
  while (path_.size() > 1 && path_.back() == '/') path_.pop_back();
  std::error_code error;
  canonical_ = fs::canonical(path_, error).string();
  if (error) throw CheckpointError(fmt::format("{}: {}", quote(path_), error.message()));
  if (!fs::is_directory(canonical_, error)) {
    throw CheckpointError(fmt::format(
        "{}: expected a folder with config.json and *.safetensors, found a file", quote(path_)));
  }
}

std::string Folder::path_of(std::string_view name) const {
  return path_ + "/" + std::string(name);
}

bool Folder::has(std::string_view name) const {
  if (plain_name_problem(name)) return false;
  std::error_code error;
  return fs::symlink_status(canonical_ + "/" + std::string(name), error).type() !=
         fs::file_type::not_found;
}

std::vector<std::string> Folder::list() const {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(canonical_, error), end; !error && it != end;
       it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  if (error) throw CheckpointError(fmt::format("{}: {}", path_, error.message()));
  std::sort(names.begin(), names.end());
  return names;
}

File Folder::open(std::string_view name) const {
  if (const auto problem = plain_name_problem(name)) {
    throw CheckpointError(fmt::format("{}: file name {} {}; expected a file directly in the folder",
                                      path_, quote(name), *problem));
  }
  const std::string entry = canonical_ + "/" + std::string(name);
  int fd = ::open(entry.c_str(), kOpenFlags);
  if (fd < 0 && errno == ELOOP) fd = ::open(resolve_link(entry).c_str(), kOpenFlags);
  if (fd < 0) {
    const int error = errno;
    throw CheckpointError(fmt::format("{}: {}", path_of(name), system_message(error)));
  }
  return File(fd, path_of(name));
}

std::string Folder::resolve_link(const std::string& entry) const {
  std::error_code error;
  const fs::path target = fs::canonical(entry, error);
  const std::string name = quote(fs::path(entry).filename().string());
  if (error) {
    throw CheckpointError(
        fmt::format("{}: {} is a broken link ({})", path_, name, error.message()));
  }
  const fs::path folder(canonical_);
  const fs::path place = target.parent_path();
  const bool inside = place == folder;
  const bool hub_blob = folder.parent_path().filename() == "snapshots" &&
                        place == folder.parent_path().parent_path() / "blobs";
  if (!inside && !hub_blob) {
    throw CheckpointError(
        fmt::format("{}: {} is a link that leaves the folder, to {}; expected a file of the folder "
                    "or, in a hub "
                    "cache, a link into the same repository's blobs",
                    path_, name, quote(target.string())));
  }
  return target.string();
}

std::string Folder::read_text(std::string_view name, std::int64_t max_bytes) const {
  const File file = open(name);
  if (file.size() > max_bytes) {
    throw CheckpointError(
        fmt::format("{}: {} bytes, expected at most {}", file.path(), file.size(), max_bytes));
  }
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(text)));
  return text;
}

}  // namespace nibble::checkpoint
