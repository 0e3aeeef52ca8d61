#include "hub/file_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "hub/api.h"
#include "nibble/status.h"

namespace nibble::hub {

FileLock::FileLock(const std::filesystem::path& path, const std::function<void()>& waiting,
                   const std::function<bool()>& cancelled) {
  std::error_code ignored;  // open() will say what is wrong
  std::filesystem::create_directories(path.parent_path(), ignored);
  fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (fd_ < 0)
    throw Error(ExitCode::kFailed, fmt::format("{}: {}", path.string(), std::strerror(errno)));
  bool said = false;
  while (flock(fd_, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return;  // no locks on this file system
    if (!said && waiting) waiting();
    said = true;
    if (cancelled && cancelled()) {
      close(fd_);
      throw Interrupted();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

FileLock::~FileLock() {
  close(fd_);
}

}  // namespace nibble::hub
