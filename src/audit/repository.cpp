#include "audit/repository.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>

#include "audit/name_check.h"
#include "checkpoint/quote.h"
#include "nibble/status.h"

namespace nibble::audit {
namespace {

namespace fs = std::filesystem;
using checkpoint::quote;

bool is_below(const std::string& path, const std::string& folder) {
  return path.size() > folder.size() + 1 && path.starts_with(folder) && path[folder.size()] == '/';
}

class Lister {
 public:
  explicit Lister(const std::string& path) {
    repository_.path = path;
    while (repository_.path.size() > 1 && repository_.path.back() == '/')
      repository_.path.pop_back();
    std::error_code error;
    root_ = fs::canonical(path, error).string();
    if (error) throw CheckpointError(fmt::format("{}: {}", quote(path), error.message()));
    if (!fs::is_directory(root_, error))
      throw CheckpointError(fmt::format("{}: expected a folder, found a file", quote(path)));
    // REPO/snapshots/REV, the layout of the hub's cache: files are links into REPO/blobs.
    const fs::path folder(root_);
    if (folder.parent_path().filename() == "snapshots")
      blobs_ = (folder.parent_path().parent_path() / "blobs").string();
  }

  Repository run() {
    list("", 0);
    std::vector<Entry>& entries = repository_.entries;
    std::sort(entries.begin(), entries.end(),
              [](const Entry& a, const Entry& b) { return a.report.name < b.report.name; });
    find_collisions();
    find_hard_links();
    return std::move(repository_);
  }

 private:
  // `folder` is relative, "" or ending in a slash. Links to folders are never entered, so this ends.
  void list(const std::string& folder, int depth) {
    if (depth > kMaxFolderDepth)
      return too_many(fmt::format("{}: folders more than {} deep", quote(folder), kMaxFolderDepth));
    std::error_code error;
    std::vector<std::string> names;
    for (fs::directory_iterator it(root_ + "/" + folder, error), end; !error && it != end;
         it.increment(error)) {
      names.push_back(it->path().filename().string());
      if (names.size() > kMaxEntries) break;
    }
    if (error)
      add(repository_.findings, Code::kUnreadable,
          fmt::format("folder {}: {}", quote(folder), error.message()), printable(folder));
    std::sort(names.begin(), names.end());
    for (const std::string& name : names) {
      if (repository_.entries.size() >= kMaxEntries)
        return too_many(fmt::format("more than {} files", kMaxEntries));
      visit(folder + name, depth);
    }
  }

  void too_many(std::string message) {
    if (!has_refusal(repository_.findings))
      add(repository_.findings, Code::kTooManyFiles, std::move(message));
  }

  void visit(const std::string& name, int depth) {
    const std::string path = root_ + "/" + name;
    struct stat info {};
    if (lstat(path.c_str(), &info) != 0) {
      const std::string problem = std::strerror(errno);
      return add(add_entry(name), Code::kUnreadable, problem);
    }
    if (S_ISDIR(info.st_mode)) {
      if (name == ".git") {
        return add(repository_.findings, Code::kGitFolder,
                   "not looked into: its hooks and its config can run programs when git is used in "
                   "this folder",
                   name);
      }
      return list(name + "/", depth + 1);
    }
    std::vector<Finding>& findings = add_entry(name);
    if (S_ISLNK(info.st_mode)) return follow(repository_.entries.back(), path);
    if (!S_ISREG(info.st_mode)) {
      return add(findings, Code::kSpecialFile,
                 fmt::format("expected a file, found a {}", S_ISFIFO(info.st_mode)   ? "pipe"
                                                            : S_ISSOCK(info.st_mode) ? "socket"
                                                                                     : "device"));
    }
    accept(repository_.entries.back(), path, info);
  }

  std::vector<Finding>& add_entry(const std::string& name) {
    Entry& entry = repository_.entries.emplace_back();
    entry.report.name = name;
    if (const auto problem = name_problem(name)) {
      add(entry.report.findings, Code::kBadName, fmt::format("the name {}", *problem));
    } else if (!is_ascii(name)) {
      add(entry.report.findings, Code::kNonAsciiName, "letters that look like others are possible");
    }
    return entry.report.findings;
  }

  static void accept(Entry& entry, const std::string& path, const struct stat& info) {
    entry.open_path = path;
    entry.report.size = info.st_size;
    entry.device = info.st_dev;
    entry.inode = info.st_ino;
    entry.links = info.st_nlink;
  }

  // As checkpoint::Folder does: a link may end in its own folder, or in the hub cache's blobs.
  void follow(Entry& entry, const std::string& path) {
    std::vector<Finding>& findings = entry.report.findings;
    std::error_code error;
    const fs::path target = fs::canonical(path, error);
    if (error) {
      const fs::path said = fs::read_symlink(path, error);
      return add(findings, Code::kLinkBroken,
                 fmt::format("a link to {}, where nothing is", quote(said.string())));
    }
    const std::string text = target.string();
    const bool blob = !blobs_.empty() && target.parent_path() == blobs_;
    if (!blob && text != root_ && !is_below(text, root_)) {
      return add(findings, Code::kLinkEscapes,
                 fmt::format("a link that leaves the repository, to {}", quote(text)));
    }
    struct stat info {};
    if (stat(text.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) {
      return add(findings, Code::kLinkRefused,
                 fmt::format("a link to something other than a file: {}", quote(text)));
    }
    if (!blob && target.parent_path() != fs::path(path).parent_path()) {
      return add(
          findings, Code::kLinkRefused,
          fmt::format("a link into another folder of the repository, {}; nibble follows links "
                      "inside one folder only",
                      quote(text)));
    }
    accept(entry, text, info);
    if (blob) entry.blob = target.filename().string();
  }

  void find_collisions() {
    std::map<std::string, const Entry*> first;
    for (Entry& entry : repository_.entries) {
      const auto [other, is_new] = first.emplace(case_key(entry.report.name), &entry);
      if (is_new) continue;
      add(entry.report.findings, Code::kCaseCollision,
          fmt::format("only capitals tell it from {}", quote(other->second->report.name)));
    }
  }

  // A file with more names than were found here can be changed through one of the others.
  void find_hard_links() {
    std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint64_t> names;
    for (const Entry& entry : repository_.entries) {
      if (!entry.open_path.empty() && entry.blob.empty()) ++names[{entry.device, entry.inode}];
    }
    for (Entry& entry : repository_.entries) {
      if (entry.open_path.empty() || entry.links < 2) continue;
      const std::uint64_t here = entry.blob.empty() ? names[{entry.device, entry.inode}] : 1;
      if (here >= entry.links) continue;
      add(entry.report.findings, Code::kHardLink,
          fmt::format("{} more names for these bytes outside the repository", entry.links - here));
    }
  }

  Repository repository_;
  std::string root_;
  std::string blobs_;  // empty: not a snapshot
};

}  // namespace

Repository list_repository(const std::string& path) {
  return Lister(path).run();
}

checkpoint::File open_entry(const Entry& entry, const std::string& display_path) {
  const int fd =
      open(entry.open_path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) throw CheckpointError(fmt::format("{}: {}", display_path, std::strerror(errno)));
  return checkpoint::File(fd, display_path);
}

}  // namespace nibble::audit
