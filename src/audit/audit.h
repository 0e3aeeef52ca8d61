// Is this checkpoint safe and whole? Every file under the folder is looked at; nothing in it is run, and nothing outside it is
// read but the blobs of a hub cache's snapshot.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "audit/codes.h"
#include "audit/report.h"

namespace nibble::audit {

struct Options {
  bool hash_large_files = true;  // false: only those of at most kSmallFileBytes
  std::vector<Code> allowed;     // refusals that the operator has looked at: they become notes
  int threads = 0;               // 0: one a CPU, at most four
};

inline constexpr std::int64_t kSmallFileBytes = 16 << 20;

// `progress` may be null; it is called on the calling thread with the share of the bytes hashed, 0 to 1. Throws CheckpointError
// when `path` is no folder; whatever else is wrong is in the report.
Report audit(const std::string& path, const Options& options,
             const std::function<void(double)>& progress);

}  // namespace nibble::audit
