// What the hub says about a repository: its commit and its files. Both parsers read untrusted text and refuse what could
// harm the disk it is written to.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "hub/digest.h"

namespace nibble::hub {

inline constexpr std::size_t kMaxFiles = 20'000;
inline constexpr std::int64_t kMaxFileBytes = std::int64_t{1} << 44;  // 16 TiB
inline constexpr std::int64_t kMaxListingBytes = 32'000'000;          // of one answer

struct HubFile {
  std::string path;  // path_problem() has nothing to say
  std::int64_t size = 0;
  FileHash hash;
};

// Why `path` cannot be the name of a file in a snapshot folder ("leaves the folder", "has a backslash in it", ...), or ""
// where it can: parts joined by '/', none of them empty, "." or "..", no control characters, at most 255 bytes a part and
// 1024 in all, at most 16 parts.
std::string path_problem(std::string_view path);

// The `sha` of /api/models/OWNER/NAME/revision/REV. Throws CheckpointError, with `where` before the problem.
std::string parse_commit(const std::string& where, std::string_view text);

// One page of /api/models/OWNER/NAME/tree/COMMIT?recursive=true, appended to `files`; folders are left out. Throws
// CheckpointError for broken JSON, a hostile name, a size or hash that is none, and more than kMaxFiles files.
void parse_tree_page(const std::string& where, std::string_view text, std::vector<HubFile>& files);

// Sorts by path. Throws CheckpointError when two paths are equal, differ only in upper and lower case, or need one name as a
// file and as a folder.
void check_paths_together(const std::string& where, std::vector<HubFile>& files);

// The `next` of a Link header (RFC 8288), or "".
std::string next_link(std::string_view header);

}  // namespace nibble::hub
