// flock(2) on a file of its own: the lock that the hub's other tools take too.
#pragma once

#include <filesystem>
#include <functional>

namespace nibble::hub {

// Held until destruction; a process that dies gives it up. Neither copied nor moved.
class FileLock {
 public:
  // Creates the file and its folder. While another process holds the lock, calls `waiting` (once) and waits. Throws
  // Error(kFailed) when the file cannot be made, and Interrupted (api.h) once `cancelled` says so. Where the file system
  // has no locks there is none.
  FileLock(const std::filesystem::path& path, const std::function<void()>& waiting,
           const std::function<bool()>& cancelled);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int fd_ = -1;
};

}  // namespace nibble::hub
