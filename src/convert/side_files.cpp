#include "convert/side_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>

#include "checkpoint/quote.h"
#include "checkpoint/shard_index.h"
#include "convert/output_file.h"
#include "nibble/status.h"

namespace nibble::convert {
namespace {

namespace fs = std::filesystem;
using checkpoint::File;
using checkpoint::Folder;

constexpr std::string_view kEncoding = "encoding";
constexpr std::int64_t kChunkBytes = 1 << 20;

bool is_data(std::string_view name) {
  constexpr std::array<std::string_view, 6> kEndings = {".json", ".jsonl", ".txt",
                                                        ".md",   ".jinja", ".model"};
  constexpr std::array<std::string_view, 3> kBeginnings = {"LICENSE", "NOTICE", "README"};
  if (name.starts_with('.')) return false;
  return std::ranges::any_of(kEndings, [&](auto e) { return name.ends_with(e); }) ||
         std::ranges::any_of(kBeginnings, [&](auto b) { return name.starts_with(b); });
}

bool written_anew(std::string_view name) {
  return name == "config.json" || name == "hf_quant_config.json" ||
         name == checkpoint::kShardIndexName || name.ends_with(".safetensors");
}

bool is_folder(const Folder& folder, const std::string& name) {
  std::error_code ignored;
  return fs::is_directory(folder.path() + "/" + name, ignored);
}

// A file of encoding/. Folder knows a snapshot of a hub cache by its parent's name, which is one level
// further up here: its links are looked through first.
File open_encoding(const Folder& folder, const std::string& name) {
  const std::string path = folder.path_of(std::string(kEncoding) + "/" + name);
  std::error_code error;
  const fs::path root = fs::canonical(folder.path(), error);
  const fs::path target = fs::canonical(path, error);
  const bool hub = root.parent_path().filename() == "snapshots";
  const bool inside = target.parent_path() == root / kEncoding ||
                      (hub && target.parent_path() == root.parent_path().parent_path() / "blobs");
  if (error || !inside)
    throw CheckpointError(
        fmt::format("{}: expected a file of the folder, found {}", path,
                    error ? error.message() : checkpoint::quote(target.string())));
  const int fd = ::open(target.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) throw CheckpointError(fmt::format("{}: cannot be opened", path));
  return {fd, path};
}

File open_side_file(const Folder& folder, const std::string& name) {
  const auto slash = name.find('/');
  return slash == std::string::npos ? folder.open(name)
                                    : open_encoding(folder, name.substr(slash + 1));
}

}  // namespace

SideFiles find_side_files(const Folder& folder) {
  SideFiles files;
  const auto take = [&](const std::string& name) {
    files.bytes += open_side_file(folder, name).size();
    files.copied.push_back(name);
  };
  for (const std::string& name : folder.list()) {
    if (written_anew(name)) continue;
    if (name == kEncoding && is_folder(folder, name)) {
      for (const auto& entry : fs::directory_iterator(folder.path() + "/" + name)) {
        const std::string inner = fmt::format("{}/{}", name, entry.path().filename().string());
        std::error_code ignored;
        const bool file = entry.is_regular_file(ignored);
        if (file && (is_data(entry.path().filename().string()) || inner.ends_with(".py")))
          take(inner);
        else
          files.left_out.push_back(
              fmt::format("{}{}", inner, is_folder(folder, inner) ? " (a folder)" : ""));
      }
    } else if (is_folder(folder, name)) {
      files.left_out.push_back(name + " (a folder)");
    } else if (is_data(name)) {
      take(name);
    } else {
      files.left_out.push_back(name);
    }
  }
  std::sort(files.copied.begin(), files.copied.end());
  std::sort(files.left_out.begin(), files.left_out.end());
  return files;
}

void copy_side_file(const Folder& folder, const std::string& name, const std::string& destination,
                    bool durable) {
  const File file = open_side_file(folder, name);
  const std::string path = destination + "/" + name;
  fs::create_directories(fs::path(path).parent_path());
  const int fd = create_file(path);
  std::vector<std::byte> chunk;
  try {
    for (std::int64_t at = 0; at < file.size(); at += kChunkBytes) {
      chunk.resize(static_cast<std::size_t>(std::min(kChunkBytes, file.size() - at)));
      file.read_at(at, chunk);
      write_at(fd, at, chunk, path);
    }
  } catch (...) {
    close(fd);
    throw;
  }
  close_file(fd, path, durable);
}

}  // namespace nibble::convert
