#include "checkpoint/folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <utility>

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

File::File(std::unique_ptr<const ByteSource> source, std::string path, std::int64_t size)
    : source_(std::move(source)), path_(std::move(path)), size_(size) {}

File::~File() {
  if (fd_ >= 0) close(fd_);
}

File::File(File&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      source_(std::move(other.source_)),
      path_(std::move(other.path_)),
      size_(other.size_) {}

File& File::operator=(File&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(source_, other.source_);
  std::swap(path_, other.path_);
  std::swap(size_, other.size_);
  return *this;
}

void File::read_at(std::int64_t offset, std::span<std::byte> out) const {
  if (source_) {
    const std::int64_t bytes = static_cast<std::int64_t>(out.size());
    if (offset < 0 || bytes > size_ - offset)
      throw CheckpointError(fmt::format("{}: the file has {} bytes; {} at offset {} were asked for",
                                        path_, size_, bytes, offset));
    source_->read_at(offset, out);
    return;
  }
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

namespace {

// A folder of this machine. Links: see Folder's constructor.
class LocalFolder final : public FolderBackend {
 public:
  explicit LocalFolder(const std::string& path);
  bool has(const std::string& name) const override;
  std::vector<std::string> list() const override;
  File open(const std::string& name, std::string path) const override;

 private:
  std::string resolve_link(const std::string& entry) const;

  std::string path_;       // for messages
  std::string canonical_;  // without links
};

LocalFolder::LocalFolder(const std::string& path) : path_(path) {
  std::error_code error;
  canonical_ = fs::canonical(path_, error).string();
  if (error) throw CheckpointError(fmt::format("{}: {}", quote(path_), error.message()));
  if (!fs::is_directory(canonical_, error)) {
    throw CheckpointError(fmt::format(
        "{}: expected a folder with config.json and *.safetensors, found a file", quote(path_)));
  }
}

bool LocalFolder::has(const std::string& name) const {
  std::error_code error;
  return fs::symlink_status(canonical_ + "/" + name, error).type() != fs::file_type::not_found;
}

std::vector<std::string> LocalFolder::list() const {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(canonical_, error), end; !error && it != end;
       it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  if (error) throw CheckpointError(fmt::format("{}: {}", path_, error.message()));
  return names;
}

File LocalFolder::open(const std::string& name, std::string path) const {
  const std::string entry = canonical_ + "/" + name;
  int fd = ::open(entry.c_str(), kOpenFlags);
  if (fd < 0 && errno == ELOOP) fd = ::open(resolve_link(entry).c_str(), kOpenFlags);
  if (fd < 0) {
    const int error = errno;
    throw CheckpointError(fmt::format("{}: {}", path, system_message(error)));
  }
  return {fd, std::move(path)};
}

std::string LocalFolder::resolve_link(const std::string& entry) const {
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

std::string without_trailing_slash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

}  // namespace

Folder::Folder(const std::string& path)
    : path_(without_trailing_slash(path)), backend_(std::make_shared<LocalFolder>(path_)) {}

Folder::Folder(std::string path, std::shared_ptr<const FolderBackend> backend)
    : path_(std::move(path)), backend_(std::move(backend)) {}

std::string Folder::path_of(std::string_view name) const {
  return path_ + "/" + std::string(name);
}

bool Folder::has(std::string_view name) const {
  return !plain_name_problem(name) && backend_->has(std::string(name));
}

std::vector<std::string> Folder::list() const {
  std::vector<std::string> names = backend_->list();
  std::sort(names.begin(), names.end());
  return names;
}

File Folder::open(std::string_view name) const {
  if (const auto problem = plain_name_problem(name)) {
    throw CheckpointError(fmt::format("{}: file name {} {}; expected a file directly in the folder",
                                      path_, quote(name), *problem));
  }
  return backend_->open(std::string(name), path_of(name));
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
