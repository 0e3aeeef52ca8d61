#include "cli/model_path.h"

#include <fmt/format.h>

#include <utility>

#include "hub/cache.h"
#include "hub/remote_folder.h"
#include "hub/repo.h"
#include "hub/settings.h"
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

std::optional<fs::path> cached(const std::string& model) {
  const auto repo = hub::parse_repo_name(model);
  if (!repo) return std::nullopt;
  return hub::RepoCache(hub::hub_cache_folder(), *repo).cached_snapshot();
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
          model, hub::hub_cache_folder().string()) +
          (hub::parse_repo_name(model) ? fmt::format("; `nibble pull {}` fetches it", model) : ""));
}

ModelFiles open_model_files(const std::string& model) {
  if (const auto found = find_model(model))
    return {checkpoint::Folder(found->folder.string()), found->name, found->folder, std::nullopt};
  const auto repo = hub::parse_repo_name(model);
  if (!repo) require_model(model);  // throws
  hub::RemoteModel remote = hub::open_remote_model(hub::settings_from_environment(), *repo);
  return {std::move(remote.folder), model, std::nullopt, remote.pull_bytes};
}

}  // namespace nibble::cli
