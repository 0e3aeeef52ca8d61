// A download that is not finished: the bytes (with holes) and, beside them, the entity tag they came with and which ranges
// are there. Survives the process; nothing in it is believed before the whole file's hash is right.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hub/digest.h"
#include "hub/http_client.h"

namespace nibble::hub {

// write() and note() may be called from several threads at once, for ranges that do not overlap. All methods throw
// Error(kFailed), naming the file, when the system refuses (a full disk among others).
class PartialFile {
 public:
  enum class Start { kResume, kAfresh };

  // Of the blob that will be called `blob`. kResume takes over what an earlier process left, if it has an entity tag and the
  // same size; else the two files are made anew.
  PartialFile(const std::filesystem::path& blob, std::int64_t size, Start start);
  ~PartialFile();
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;

  const std::string& etag() const { return etag_; }  // "" before begin()
  bool resumed() const { return resumed_; }
  // What is not there, in order, in pieces of at most `largest` bytes.
  std::vector<ByteRange> missing(std::int64_t largest) const;
  std::int64_t present_bytes() const;

  // First bytes are about to come, under this entity tag ("" when the server has none: then a later process starts afresh).
  // Before any write(), by one thread.
  void begin(const std::string& etag);
  void write(std::int64_t offset, std::span<const std::byte> bytes);
  void note(ByteRange range);  // these bytes have been written

  // The whole file's, as hash_file() says.
  std::optional<std::string> hash(const FileHash& expected,
                                  const std::function<bool()>& cancelled) const;
  void finish();  // flushes, and gives the bytes their final name
  void remove();  // both files

  // Set when a new PartialFile takes this one's place while requests still run for this one.
  std::atomic<bool> abandoned{false};

 private:
  bool load();
  [[noreturn]] void fail(const std::string& doing, int error) const;

  std::filesystem::path blob_, bytes_path_, parts_path_;
  std::int64_t size_;
  int bytes_fd_ = -1;
  int parts_fd_ = -1;
  std::string etag_;
  bool resumed_ = false;
  mutable std::mutex mutex_;
  std::vector<ByteRange> present_;  // sorted, disjoint
};

}  // namespace nibble::hub
