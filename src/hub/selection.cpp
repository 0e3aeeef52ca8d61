#include "hub/selection.h"

#include <fnmatch.h>
#include <strings.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "hub/cache.h"

namespace nibble::hub {
namespace {

bool matches(const char* pattern, const std::string& path, int flags) {
  return fnmatch(pattern, path.c_str(), flags) == 0;
}

}  // namespace

bool is_selected(const Selection& selection, const std::string& path) {
  const std::string name = path.substr(path.rfind('/') + 1);
  if (strcasecmp(name.c_str(), kLockFileName) == 0) return false;
  constexpr std::array kOwn = {"*.safetensors", "*.json", "LICENSE*", "README*", "encoding/*.py"};
  const auto own = [&](const char* pattern) { return matches(pattern, path, FNM_PATHNAME); };
  const auto asked = [&](const std::string& pattern) { return matches(pattern.c_str(), path, 0); };
  return selection.all || std::any_of(kOwn.begin(), kOwn.end(), own) ||
         std::any_of(selection.include.begin(), selection.include.end(), asked);
}

std::vector<HubFile> select(const Selection& selection, const std::vector<HubFile>& files) {
  std::vector<HubFile> selected;
  for (const HubFile& file : files)
    if (is_selected(selection, file.path)) selected.push_back(file);
  return selected;
}

std::int64_t total_bytes(const std::vector<HubFile>& files) {
  std::int64_t bytes = 0;  // at most kMaxFiles times kMaxFileBytes: fits
  for (const HubFile& file : files) bytes += file.size;
  return bytes;
}

}  // namespace nibble::hub
