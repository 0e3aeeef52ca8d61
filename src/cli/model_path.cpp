#include "cli/model_path.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "nibble/status.h"

namespace nibble::cli {
namespace {

namespace fs = std::filesystem;

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

// The package puts models in share/nibble beside bin; a build tree lies inside the source tree, one or two levels down.
std::optional<fs::path> bundled(const std::string& name) {
  std::error_code error;
  const fs::path exe = fs::read_symlink("/proc/self/exe", error).parent_path();
  if (error) return std::nullopt;
  for (const char* relative : {"../share/nibble/models", "../models", "../../models"}) {
    const fs::path candidate = (exe / relative / name).lexically_normal();
    if (is_folder(candidate)) return candidate;
  }
  return std::nullopt;
}

fs::path hub_cache() {
  if (const char* cache = std::getenv("HF_HUB_CACHE"); cache && *cache) return cache;
  if (const char* home = std::getenv("HF_HOME"); home && *home) return fs::path(home) / "hub";
  const char* home = std::getenv("HOME");
  return fs::path(home ? home : "/") / ".cache/huggingface/hub";
}

// OWNER/NAME with nothing in it that could walk through the file system.
bool is_repository_name(const std::string& model) {
  const auto slash = model.find('/');
  if (slash == std::string::npos || slash == 0 || slash + 1 == model.size()) return false;
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  };
  return model[0] != '.' && model[slash + 1] != '.' &&
         std::count(model.begin(), model.end(), '/') == 1 &&
         std::all_of(model.begin(), model.end(), [&](char c) { return c == '/' || allowed(c); });
}

std::optional<fs::path> cached(const std::string& model) {
  if (!is_repository_name(model)) return std::nullopt;
  std::string folder = "models--" + model;
  folder.replace(folder.find('/'), 1, "--");
  std::ifstream ref(hub_cache() / folder / "refs/main");
  std::string revision;
  if (!(ref >> revision) || revision.find('/') != std::string::npos || revision[0] == '.')
    return std::nullopt;
  const fs::path snapshot = hub_cache() / folder / "snapshots" / revision;
  return is_folder(snapshot) ? std::optional(snapshot) : std::nullopt;
}

}  // namespace

std::optional<ModelPath> find_model(const std::string& model) {
  if (model.empty()) return std::nullopt;
  const auto named = [](std::optional<fs::path> folder, std::string name) {
    return folder ? std::optional(ModelPath{std::move(*folder), std::move(name)}) : std::nullopt;
  };
  if (is_folder(model)) {
    std::error_code error;
    const fs::path whole = fs::canonical(model, error);  // also for "." and "models/tiny/"
    return ModelPath{model, (error ? fs::path(model) : whole).filename().string()};
  }
  if (model == "tiny") return named(bundled(model), model);
  return named(cached(model), model);
}

fs::path hub_cache_folder() {
  return hub_cache();
}

bool names_model(const std::string& word) {
  const auto found = find_model(word);
  std::error_code ignored;
  return found && (word.find('/') != std::string::npos ||
                   fs::exists(found->folder / "config.json", ignored));
}

ModelPath require_model(const std::string& model) {
  if (auto found = find_model(model)) return *found;
  if (model == "tiny")
    throw Error(
        ExitCode::kUsage,
        "the bundled model 'tiny' is not beside this executable; name a model folder instead");
  throw Error(
      ExitCode::kUsage,
      fmt::format(
          "no model '{}': not a folder, not 'tiny', and nothing of that name in the hub cache ({})",
          model, hub_cache().string()));
}

}  // namespace nibble::cli
