// The names in a zip archive, from its directory at the end; nothing is unpacked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/folder.h"

namespace nibble::audit {

// Where the archive's directory lies in the file.
struct ZipDirectory {
  std::int64_t offset = 0;
  std::int64_t bytes = 0;
};

inline constexpr std::int64_t kZipTail_bytes = 65557;  // the end record and its longest comment

// `tail` is the last kZipTail_bytes of a file of `file_bytes`, or all of it. Nothing: no end record whose numbers fit the file.
// A file with bytes in front of the archive has one too, which is how an archive hides behind something else.
std::optional<ZipDirectory> find_zip_directory(std::span<const std::byte> tail,
                                               std::int64_t file_bytes);

// Names in the directory's bytes, at most 10,000, up to the first entry that is broken.
std::vector<std::string> zip_names(std::span<const std::byte> directory);

// Both, for a file. Nothing when it has no archive in it. Throws CheckpointError when it cannot be read.
std::optional<std::vector<std::string>> list_zip(const checkpoint::File& file);

}  // namespace nibble::audit
