// How a user names a repository: OWNER/NAME or OWNER/NAME@REVISION.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace nibble::hub {

struct RepoName {
  std::string id;                 // OWNER/NAME
  std::string revision = "main";  // a branch, a tag or a commit

  std::string folder() const;  // of the hub cache: models--OWNER--NAME
  std::string text() const;    // as the user writes it; without "@main"
};

// Nothing when `text` is not a repository's name: OWNER and NAME of letters, digits, '-', '_' and '.', not beginning with
// '.' or '-', without "--" or ".." (the cache joins the two by "--"). A revision has also '/', and no part of it begins with
// '.', because it becomes a path in the cache.
std::optional<RepoName> parse_repo_name(std::string_view text);

// 40 hexadecimal digits: names one commit for ever.
bool is_commit(std::string_view revision);

}  // namespace nibble::hub
