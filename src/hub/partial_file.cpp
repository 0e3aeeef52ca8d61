#include "hub/partial_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "hub/cache.h"
#include "nibble/status.h"

namespace nibble::hub {
namespace {

namespace fs = std::filesystem;

constexpr int kFormat = 1;  // of the parts file

int open_file(const fs::path& path, int flags) {
  return open(path.c_str(), flags | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
}

// Sorted, overlapping and touching ranges joined.
void join(std::vector<ByteRange>& ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](ByteRange a, ByteRange b) { return a.begin < b.begin; });
  std::vector<ByteRange> joined;
  for (const ByteRange range : ranges) {
    if (!joined.empty() && range.begin <= joined.back().end)
      joined.back().end = std::max(joined.back().end, range.end);
    else
      joined.push_back(range);
  }
  ranges = std::move(joined);
}

}  // namespace

PartialFile::PartialFile(const fs::path& blob, std::int64_t size, Start start)
    : blob_(blob),
      bytes_path_(blob.string() + ".nibble-incomplete"),
      parts_path_(blob.string() + ".nibble-parts"),
      size_(size) {
  resumed_ = start == Start::kResume && load();
  if (!resumed_) {
    // Removed rather than truncated: requests for an abandoned one may still write to its files.
    etag_.clear();
    present_.clear();
    unlink(bytes_path_.c_str());
    unlink(parts_path_.c_str());
  }
  bytes_fd_ = open_file(bytes_path_, O_RDWR);
  if (bytes_fd_ < 0) fail("cannot be opened", errno);
  parts_fd_ = open_file(parts_path_, O_WRONLY | O_APPEND);
  if (parts_fd_ < 0) {
    const int error = errno;
    close(bytes_fd_);
    fail("cannot be opened", error);
  }
}

PartialFile::~PartialFile() {
  close(bytes_fd_);
  close(parts_fd_);
}

void PartialFile::fail(const std::string& doing, int error) const {
  throw Error(ExitCode::kFailed,
              fmt::format("{}: {}: {}", bytes_path_.string(), doing, std::strerror(error)));
}

// Text: "nibble-parts FORMAT SIZE", the entity tag, then "BEGIN END" a line. A last line without its end was being written
// when the process died.
bool PartialFile::load() {
  std::error_code error;
  const auto length = fs::file_size(bytes_path_, error);
  std::ifstream file(parts_path_);
  std::string line, word;
  if (error || !std::getline(file, line)) return false;
  int format = 0;
  std::int64_t size = -1;
  std::istringstream head(line);
  if (!(head >> word >> format >> size) || word != "nibble-parts" || format != kFormat ||
      size != size_ || !std::getline(file, etag_) || etag_.empty())
    return false;
  while (std::getline(file, line) && !file.eof()) {
    std::istringstream numbers(line);
    ByteRange range;
    if (!(numbers >> range.begin >> range.end) || range.begin < 0 || range.end <= range.begin ||
        range.end > size_ || static_cast<std::uintmax_t>(range.end) > length)
      return false;
    present_.push_back(range);
  }
  join(present_);
  return !present_.empty();
}

std::vector<ByteRange> PartialFile::missing(std::int64_t largest) const {
  const std::lock_guard lock(mutex_);
  std::vector<ByteRange> pieces;
  const auto cut = [&](std::int64_t begin, std::int64_t end) {
    for (; begin < end; begin += largest) pieces.push_back({begin, std::min(end, begin + largest)});
  };
  std::int64_t at = 0;
  for (const ByteRange range : present_) {
    cut(at, range.begin);
    at = range.end;
  }
  cut(at, size_);
  return pieces;
}

std::int64_t PartialFile::present_bytes() const {
  const std::lock_guard lock(mutex_);
  std::int64_t bytes = 0;
  for (const ByteRange range : present_) bytes += range.size();
  return bytes;
}

void PartialFile::begin(const std::string& etag) {
  const bool storable = std::all_of(etag.begin(), etag.end(),
                                    [](char c) { return static_cast<unsigned char>(c) >= 0x20; });
  etag_ = storable ? etag : "";
  const std::string text = fmt::format("nibble-parts {} {}\n{}\n", kFormat, size_, etag_);
  if (::write(parts_fd_, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    fail("cannot be written (what has arrived is kept)", errno);
}

void PartialFile::write(std::int64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = pwrite(bytes_fd_, bytes.data(), bytes.size(), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("cannot be written (what has arrived is kept)", errno);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    offset += written;
  }
}

void PartialFile::note(ByteRange range) {
  if (range.size() <= 0) return;
  const std::lock_guard lock(mutex_);
  present_.push_back(range);
  join(present_);
  const std::string line = fmt::format("{} {}\n", range.begin, range.end);
  // On a full disk the note is lost: those bytes come again.
  [[maybe_unused]] const ssize_t ignored = ::write(parts_fd_, line.data(), line.size());
}

std::optional<std::string> PartialFile::hash(const FileHash& expected,
                                             const std::function<bool()>& cancelled) const {
  return hash_file(bytes_path_, expected, size_, cancelled);
}

void PartialFile::finish() {
  if (ftruncate(bytes_fd_, size_) != 0) fail("cannot be cut to its size", errno);
  if (fsync(bytes_fd_) != 0) fail("cannot be flushed to the disk", errno);
  if (rename(bytes_path_.c_str(), blob_.c_str()) != 0) fail("cannot be renamed", errno);
  flush_folder(blob_.parent_path());
  unlink(parts_path_.c_str());
}

void PartialFile::remove() {
  unlink(bytes_path_.c_str());
  unlink(parts_path_.c_str());
}

}  // namespace nibble::hub
