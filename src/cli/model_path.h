// From what a user calls a model to the folder that holds it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace nibble::cli {

struct ModelPath {
  std::filesystem::path folder;
  std::string name;  // what requests call it: the folder's last component, or OWNER/NAME
};

// In this order: an existing folder; `tiny`, the bundled model, found relative to the executable; OWNER/NAME in the hub
// cache (HF_HUB_CACHE, HF_HOME/hub, ~/.cache/huggingface/hub), at the revision its refs/main names. Nothing: not a model.
std::optional<ModelPath> find_model(const std::string& model);

// The same; throws Error(kUsage) that says where was looked.
ModelPath require_model(const std::string& model);

// Where downloaded models lie (or will): the hub cache named above, which need not exist.
std::filesystem::path hub_cache_folder();

// Whether a lone word of `nibble run` means a model rather than text to answer: it is found, and is written as a path or
// holds a config.json (a folder that happens to be called "docs" is no model).
bool names_model(const std::string& word);

}  // namespace nibble::cli
