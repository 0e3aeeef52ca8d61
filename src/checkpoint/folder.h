// A checkpoint's folder, and the only way its files are opened: nothing outside it is read,
// whatever the folder's own files say. The folder is on this machine, or somewhere else behind a
// FolderBackend (a repository of a hub, read over HTTP without downloading it).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace nibble::checkpoint {

// Where the bytes of a file that is not on this machine come from.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Fills `out` from byte `offset`; the range lies inside the file. Callable from several threads at
  // once. Throws CheckpointError, naming the file, when the bytes cannot be had.
  virtual void read_at(std::int64_t offset, std::span<std::byte> out) const = 0;
};

// A regular file opened for reading, with the size it had when opened. Move only; closes on
// destruction. read_at() may be called from several threads at once.
class File {
 public:
  // Takes ownership of fd. `path` is what messages call the file. Throws CheckpointError unless fd
  // is a regular file.
  File(int fd, std::string path);
  // `size` bytes that `source` (not null) supplies.
  File(std::unique_ptr<const ByteSource> source, std::string path, std::int64_t size);
  ~File();
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;

  const std::string& path() const { return path_; }
  std::int64_t size() const { return size_; }

  // Fills `out` from byte `offset`. Throws CheckpointError when the file ends first or the system
  // reports an error.
  void read_at(std::int64_t offset, std::span<std::byte> out) const;

 private:
  int fd_ = -1;
  std::unique_ptr<const ByteSource> source_;  // null: fd_
  std::string path_;
  std::int64_t size_ = 0;
};

// The files of a folder, wherever it is. Names are plain (plain_name_problem() has nothing to say).
// Callable from several threads at once.
class FolderBackend {
 public:
  virtual ~FolderBackend() = default;
  virtual bool has(const std::string& name) const = 0;
  virtual std::vector<std::string> list() const = 0;  // in any order
  // `path` is what messages call the file. Throws CheckpointError when it is missing or not regular.
  virtual File open(const std::string& name, std::string path) const = 0;
};

// Why `name` cannot be a file directly inside a checkpoint folder ("contains a slash", ...), or
// nothing.
std::optional<std::string> plain_name_problem(std::string_view name);

// Immutable after construction; safe to use from several threads. Copies share the backend.
class Folder {
 public:
  // A folder of this machine. Throws CheckpointError when path is not one. A link in it is followed
  // in two cases only: it ends inside the folder, or the folder is a snapshot of a hub cache
  // (REPO/snapshots/REV) and the link ends in REPO/blobs. Opening any other link throws, and so does
  // a file that is not regular (a pipe would block).
  explicit Folder(const std::string& path);
  // `path` is what messages call the folder.
  Folder(std::string path, std::shared_ptr<const FolderBackend> backend);

  const std::string& path() const { return path_; }
  std::string path_of(std::string_view name) const;  // for messages

  // True when the folder has an entry of that name, of whatever kind.
  bool has(std::string_view name) const;

  // Names of all entries, sorted.
  std::vector<std::string> list() const;

  // Throws CheckpointError for a name that is not plain, a missing file, and as said above.
  File open(std::string_view name) const;

  // A whole file as text, with `open`'s rules. Throws CheckpointError beyond max_bytes.
  std::string read_text(std::string_view name, std::int64_t max_bytes) const;

 private:
  std::string path_;  // as the user wrote it, no trailing slash
  std::shared_ptr<const FolderBackend> backend_;
};

}  // namespace nibble::checkpoint
