// nibble.lock.json: what was verified when a snapshot was pulled, for `audit` and for the next pull.
//   {"version": 1, "repo": "OWNER/NAME", "revision": "COMMIT",
//    "files": {"PATH": {"size": N, "sha256": "..."} or {"size": N, "git_blob": "..."}, ...}}
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "hub/listing.h"

namespace nibble::hub {

struct LockFile {
  std::string repo;                      // OWNER/NAME
  std::string commit;                    // "revision" in the file
  std::map<std::string, HubFile> files;  // by path
};

std::string lock_file_text(const LockFile& lock);

// Throws CheckpointError, with `where` before the problem, for anything lock_file_text() does not write (unknown keys are
// passed over).
LockFile parse_lock_file(const std::string& where, std::string_view text);

}  // namespace nibble::hub
