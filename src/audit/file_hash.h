// Hashes of whole files, as Git and the model hubs know them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "checkpoint/folder.h"

namespace nibble::audit {

enum class HashKind {
  kSha256,   // of the bytes: what Git LFS and the hubs call large files by
  kGitBlob,  // SHA-1 of "blob SIZE\0" and the bytes: what Git calls every other file by
};

// Lower-case hex. Reads the file once, in pieces; `advance` is called with the bytes of each (on the calling thread). Throws
// CheckpointError when the file cannot be read.
std::string hash_file(const checkpoint::File& file, HashKind kind,
                      const std::function<void(std::int64_t)>& advance);

// The kind of a hash by its text: 64 lower-case hex digits are SHA-256, 40 a Git blob. False: neither.
bool hash_kind_of(const std::string& hex, HashKind& kind);

}  // namespace nibble::audit
