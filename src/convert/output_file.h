// Files being written: the system's calls, with what failed said in one way. All throw Error(kFailed)
// naming the path.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace nibble::convert {

int create_file(const std::string& path);  // a descriptor; the path must not exist

// Claims the space where the file system can. A disk that is too small is an error already here.
void reserve_bytes(int fd, std::int64_t bytes, const std::string& path);

void write_at(int fd, std::int64_t offset, std::span<const std::byte> bytes,
              const std::string& path);

// `durable`: waits until the file is on the disk. Closes it in any case.
void close_file(int fd, const std::string& path, bool durable);

// A whole small file.
void write_file(const std::string& path, std::string_view text, bool durable);

}  // namespace nibble::convert
