// A checkpoint's folder, and the only way its files are opened: nothing outside it is read,
// whatever the folder's own files say.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace nibble::checkpoint {

// A regular file opened for reading, with the size it had when opened. Move only; closes on
// destruction. read_at() may be called from several threads at once.
class File {
 public:
  // Takes ownership of fd. `path` is what messages call the file. Throws CheckpointError unless fd
  // is a regular file.
  File(int fd, std::string path);
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
  std::string path_;
  std::int64_t size_ = 0;
};

// Why `name` cannot be a file directly inside a checkpoint folder ("contains a slash", ...), or
// nothing.
std::optional<std::string> plain_name_problem(std::string_view name);

// Immutable after construction; safe to use from several threads.
class Folder {
 public:
  // Throws CheckpointError when path is not a folder.
  explicit Folder(std::string path);

  const std::string& path() const { return path_; }
  std::string path_of(std::string_view name) const;  // for messages

  // True when the folder has an entry of that name, of whatever kind.
  bool has(std::string_view name) const;

  // Names of all entries, sorted.
  std::vector<std::string> list() const;

  // Opens a file of the folder. A link is followed in two cases only: it ends inside the folder, or
  // the folder is a snapshot of a hub cache (REPO/snapshots/REV) and the link ends in REPO/blobs.
  // Throws CheckpointError for any other link, for a name that is not plain, for a missing file,
  // and for one that is not regular (a pipe would block).
  File open(std::string_view name) const;

  // A whole file as text, with `open`'s rules. Throws CheckpointError beyond max_bytes.
  std::string read_text(std::string_view name, std::int64_t max_bytes) const;

 private:
  std::string resolve_link(const std::string& entry) const;

  std::string path_;       // as the user wrote it, no trailing slash
  std::string canonical_;  // without links
};

}  // namespace nibble::checkpoint
