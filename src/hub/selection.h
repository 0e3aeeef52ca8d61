// Which files of a repository a pull fetches.
#pragma once

#include <string>
#include <vector>

#include "hub/listing.h"

namespace nibble::hub {

struct Selection {
  bool all = false;
  std::vector<std::string>
      include;  // shell patterns, matched against the whole path; '*' also matches '/'
};

// Directly in the repository: *.safetensors, *.json, LICENSE*, README*. In encoding/: *.py, which is the chat grammar, read
// as data and never run. More only as `selection` says. A file called nibble.lock.json, in any case, is never one of them.
bool is_selected(const Selection& selection, const std::string& path);

std::vector<HubFile> select(const Selection& selection, const std::vector<HubFile>& files);

std::int64_t total_bytes(const std::vector<HubFile>& files);

}  // namespace nibble::hub
