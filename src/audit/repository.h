// Every entry under a model's folder, without opening any: links are judged by where they lead, and only what may be read can be
// opened afterwards.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "audit/report.h"
#include "checkpoint/folder.h"

namespace nibble::audit {

struct Entry {
  FileReport report;      // name, size, and what the entry itself is guilty of
  std::string open_path;  // without links; empty: must not be opened
  std::string blob;  // the hub cache's name for the bytes, which is their hash; empty elsewhere
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t links = 1;  // names of these bytes in the file system
};

struct Repository {
  std::string path;               // as the user wrote it
  std::vector<Entry> entries;     // files and what is no file, sorted by name
  std::vector<Finding> findings;  // about the folder as a whole
};

inline constexpr std::size_t kMaxEntries = 50'000;
inline constexpr int kMaxFolderDepth = 16;

// Throws CheckpointError when `path` is no folder. Findings: names, links, special files, hard links, collisions, .git.
Repository list_repository(const std::string& path);

// Opens what list_repository() found; open_path is not empty. Throws CheckpointError.
checkpoint::File open_entry(const Entry& entry, const std::string& display_path);

}  // namespace nibble::audit
