#include "convert/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "nibble/status.h"

namespace nibble::convert {
namespace {

[[noreturn]] void fail(const std::string& path, const std::string& what, int error) {
  throw Error(ExitCode::kFailed,
              fmt::format("{}: cannot {}: {}", path, what, std::strerror(error)));
}

}  // namespace

int create_file(const std::string& path) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (fd < 0) fail(path, "create it", errno);
  return fd;
}

void reserve_bytes(int fd, std::int64_t bytes, const std::string& path) {
  if (bytes == 0 || fallocate(fd, 0, 0, bytes) == 0) return;
  const int error = errno;
  // Some file systems have no such call; writing will find out.
  if (error != EOPNOTSUPP && error != ENOSYS && error != EINTR)
    fail(path, fmt::format("reserve {} bytes", bytes), error);
}

void write_at(int fd, std::int64_t offset, std::span<const std::byte> bytes,
              const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t put = pwrite(fd, bytes.data(), bytes.size(), offset);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0)
      fail(path, fmt::format("write {} bytes at offset {}", bytes.size(), offset),
           put < 0 ? errno : ENOSPC);
    bytes = bytes.subspan(static_cast<std::size_t>(put));
    offset += put;
  }
}

void close_file(int fd, const std::string& path, bool durable) {
  const int synced = !durable || fsync(fd) == 0 ? 0 : errno;
  const int closed = close(fd) == 0 ? 0 : errno;
  if (synced != 0 || closed != 0) fail(path, "bring it to the disk", synced != 0 ? synced : closed);
}

void write_file(const std::string& path, std::string_view text, bool durable) {
  const int fd = create_file(path);
  try {
    write_at(fd, 0, std::as_bytes(std::span(text)), path);
  } catch (...) {
    close(fd);
    throw;
  }
  close_file(fd, path, durable);
}

}  // namespace nibble::convert
