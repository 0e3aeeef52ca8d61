// What the files' hashes should be, from three places: nibble.lock.json, the names of the hub cache's blobs, and the notes that a
// hub's client leaves beside a download.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "audit/file_hash.h"
#include "audit/report.h"

namespace nibble::audit {

struct ExpectedHash {
  HashKind kind = HashKind::kSha256;
  std::string hex;
  std::string source;  // "nibble.lock.json", ...
};

struct LockedFile {
  std::optional<std::int64_t> size;
  std::optional<ExpectedHash> hash;
};

// By name relative to the model's folder.
using LockFile = std::map<std::string, LockedFile>;

// nibble.lock.json:
//   {"version": 1, "repo": "OWNER/NAME", "revision": "COMMIT",
//    "files": {"NAME": {"size": N, "sha256": "HEX"} or {"size": N, "git_blob": "HEX"}}}
// Members it does not know are skipped. What is wrong goes to `findings` as lock_broken or path_traversal, and the entries that
// can be read are returned all the same.
LockFile parse_lock(std::string_view text, std::vector<Finding>& findings);

// NAME.metadata in .cache/huggingface/download: revision, ETag, time, a line each. Nothing: no hash in it.
std::optional<ExpectedHash> parse_hub_metadata(std::string_view text);

}  // namespace nibble::audit
