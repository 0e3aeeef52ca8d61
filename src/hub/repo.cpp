#include "hub/repo.h"

#include <algorithm>

#include "hub/digest.h"

namespace nibble::hub {
namespace {

constexpr std::size_t kLongestPart = 96;
constexpr std::size_t kLongestRevision = 255;

bool is_word_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_' || c == '.';
}

bool is_name_part(std::string_view part) {
  return !part.empty() && part.size() <= kLongestPart && part.front() != '.' &&
         part.front() != '-' && part.find("--") == std::string_view::npos &&
         part.find("..") == std::string_view::npos &&
         std::all_of(part.begin(), part.end(), is_word_character);
}

bool is_revision(std::string_view revision) {
  if (revision.empty() || revision.size() > kLongestRevision) return false;
  while (true) {
    const auto slash = revision.find('/');
    const std::string_view part = revision.substr(0, slash);
    if (part.empty() || part.front() == '.' || part.front() == '-' ||
        part.find("..") != std::string_view::npos ||
        !std::all_of(part.begin(), part.end(), is_word_character))
      return false;
    if (slash == std::string_view::npos) return true;
    revision.remove_prefix(slash + 1);
  }
}

}  // namespace

std::string RepoName::folder() const {
  std::string name = "models--" + id;
  return name.replace(name.find('/'), 1, "--");
}

std::string RepoName::text() const {
  return revision == "main" ? id : id + "@" + revision;
}

std::optional<RepoName> parse_repo_name(std::string_view text) {
  RepoName name;
  if (const auto at = text.find('@'); at != std::string_view::npos) {
    if (!is_revision(text.substr(at + 1))) return std::nullopt;
    name.revision = text.substr(at + 1);
    text = text.substr(0, at);
  }
  const auto slash = text.find('/');
  if (slash == std::string_view::npos || !is_name_part(text.substr(0, slash)) ||
      !is_name_part(text.substr(slash + 1)))
    return std::nullopt;
  name.id = text;
  return name;
}

bool is_commit(std::string_view revision) {
  return is_hex(revision, 40);
}

}  // namespace nibble::hub
