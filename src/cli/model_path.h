// From what a user calls a model to the folder that holds it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "checkpoint/folder.h"

namespace nibble::cli {

struct ModelPath {
  std::filesystem::path folder;
  std::string name;  // what requests call it: the folder's last component, or OWNER/NAME[@REV]
};

// In this order: an existing folder; `tiny`, the bundled model, found relative to the executable; OWNER/NAME or
// OWNER/NAME@REVISION in the hub cache (hub::hub_cache_folder()), at the commit that refs/main or refs/REVISION names, or at
// REVISION when it is a commit. Nothing: not a model.
std::optional<ModelPath> find_model(const std::string& model);

// The same; throws Error(kUsage) that says where was looked.
ModelPath require_model(const std::string& model);

// The files of a model, for commands that only look at it.
struct ModelFiles {
  checkpoint::Folder folder;
  std::string name;
  std::optional<std::filesystem::path>
      local;                               // the folder on this machine; nothing: read from the hub
  std::optional<std::int64_t> pull_bytes;  // from the hub: what `nibble pull` would fetch
};

// As find_model(), and a repository that is not in the cache is read from the hub, without downloading it. Throws
// Error(kUsage) when there is no such model, and what hub::open_remote_model() throws.
ModelFiles open_model_files(const std::string& model);

// Whether a lone word of `nibble run` means a model rather than text to answer: it is found, and is written as a path or
// holds a config.json (a folder that happens to be called "docs" is no model).
bool names_model(const std::string& word);

}  // namespace nibble::cli
