// The folder a conversion writes: made under a temporary name beside its place, renamed when whole.
#pragma once

#include <cstdint>
#include <string>

namespace nibble::convert {

class OutputFolder {
 public:
  // Checks only: throws Error(kUsage) when `path` lies in `source` (or the other way round), is
  // anything but absent or an empty folder, or has no parent folder.
  OutputFolder(const std::string& path, const std::string& source);
  ~OutputFolder();  // removes what was not committed
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  // Throws Error(kFailed), with what is missing, when the disk has less than `bytes` left.
  void require_space(std::int64_t bytes) const;

  // Makes the temporary folder. Throws Error(kFailed) when it is there already: another conversion is
  // at it, or one was killed.
  void create();

  const std::string& path() const { return path_; }        // where it will be, absolute
  const std::string& partial() const { return partial_; }  // where it is written: PATH.partial

  // Everything in it is on the disk: gives it its name.
  void commit();

 private:
  std::string path_;
  std::string partial_;
  bool created_ = false;
};

}  // namespace nibble::convert
