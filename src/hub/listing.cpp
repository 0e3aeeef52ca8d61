#include "hub/listing.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "checkpoint/folder.h"
#include "checkpoint/json_guard.h"
#include "checkpoint/quote.h"
#include "hub/repo.h"
#include "nibble/status.h"

namespace nibble::hub {
namespace {

namespace json = simdjson::ondemand;
using checkpoint::quote;

constexpr std::size_t kLongestPath = 1024;
constexpr std::size_t kMaxParts = 16;

// Shared by both parsers: every failure carries where the text came from.
class Reader {
 public:
  explicit Reader(const std::string& where) : where_(where) {}

  [[noreturn]] void fail(const std::string& problem) const {
    throw CheckpointError(fmt::format("{}: {}", where_, problem));
  }

  void check(simdjson::error_code error) const {
    if (error) fail(fmt::format("broken JSON ({})", simdjson::error_message(error)));
  }

  // Text that is asked for; absent and null are nothing.
  std::optional<std::string> text(json::value value, const char* key) const {
    std::string_view view;
    if (value.get_string().get(view)) fail(fmt::format("{} is not text", key));
    return std::string(view);
  }

  std::int64_t size(json::value value, const std::string& path) const {
    std::uint64_t number = 0;
    if (value.get_uint64().get(number) || number > static_cast<std::uint64_t>(kMaxFileBytes))
      fail(fmt::format("file {}: expected a size of 0 to {} bytes", quote(path), kMaxFileBytes));
    return static_cast<std::int64_t>(number);
  }

  simdjson::padded_string padded(std::string_view text) const {
    if (const auto problem = checkpoint::json_problem(text)) fail(*problem);
    return simdjson::padded_string(text);
  }

 private:
  const std::string& where_;
};

// One element of the tree. Order of the keys is the server's affair, so all are read before anything is judged.
class EntryParser {
 public:
  explicit EntryParser(const Reader& reader) : reader_(reader) {}

  // Nothing for a folder.
  std::optional<HubFile> parse(json::object entries) {
    for (auto entry : entries) {
      json::field field;
      reader_.check(std::move(entry).get(field));
      std::string_view key;
      reader_.check(field.unescaped_key().get(key));
      if (key == "type") {
        type_ = reader_.text(field.value(), "type");
      } else if (key == "path") {
        path_ = reader_.text(field.value(), "path");
      } else if (key == "oid") {
        oid_ = reader_.text(field.value(), "oid");
      } else if (key == "size") {
        size_ = reader_.size(field.value(), path_.value_or(""));
      } else if (key == "lfs") {
        parse_lfs(field.value());
      }
    }
    return finish();
  }

 private:
  void parse_lfs(json::value value) {
    bool null = false;
    if (!value.is_null().get(null) && null) return;
    json::object entries;
    if (value.get_object().get(entries)) reader_.fail("lfs is not an object");
    for (auto entry : entries) {
      json::field field;
      reader_.check(std::move(entry).get(field));
      std::string_view key;
      reader_.check(field.unescaped_key().get(key));
      if (key == "oid" || key == "sha256")
        lfs_oid_ = reader_.text(field.value(), "lfs.oid");
      else if (key == "size")
        lfs_size_ = reader_.size(field.value(), path_.value_or(""));
    }
    lfs_ = true;
  }

  std::optional<HubFile> finish() {
    if (!type_) reader_.fail("an entry has no type");
    if (!path_) reader_.fail("an entry has no path");
    if (const std::string problem = path_problem(*path_); !problem.empty())
      reader_.fail(fmt::format("file name {} {}", quote(*path_), problem));
    if (*type_ != "file") return std::nullopt;
    if (!size_) reader_.fail(fmt::format("file {} has no size", quote(*path_)));
    HubFile file{*path_, *size_, {}};
    if (lfs_) {
      if (!lfs_oid_ || !is_hex(*lfs_oid_, 64))
        reader_.fail(fmt::format("file {}: expected a SHA-256, found {}", quote(*path_),
                                 quote(lfs_oid_.value_or(""))));
      if (lfs_size_ && *lfs_size_ != *size_)
        reader_.fail(
            fmt::format("file {}: two sizes, {} and {} bytes", quote(*path_), *size_, *lfs_size_));
      file.hash.sha256 = *lfs_oid_;
    } else {
      if (!oid_ || !is_hex(*oid_, 40))
        reader_.fail(fmt::format("file {}: expected a git blob id, found {}", quote(*path_),
                                 quote(oid_.value_or(""))));
      file.hash.git_blob = *oid_;
    }
    return file;
  }

  const Reader& reader_;
  std::optional<std::string> type_, path_, oid_, lfs_oid_;
  std::optional<std::int64_t> size_, lfs_size_;
  bool lfs_ = false;
};

std::string folded(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

}  // namespace

std::string path_problem(std::string_view path) {
  if (path.empty()) return "is empty";
  if (path.front() == '/') return "is an absolute path";
  if (path.size() > kLongestPath) return fmt::format("is longer than {} bytes", kLongestPath);
  std::size_t parts = 0;
  for (std::string_view rest = path;;) {
    const auto slash = rest.find('/');
    const std::string_view part = rest.substr(0, slash);
    if (part == "..") return "leaves the folder";
    if (const auto problem = checkpoint::plain_name_problem(part)) {
      return part.size() == path.size() ? *problem : fmt::format("has a part that {}", *problem);
    }
    if (++parts > kMaxParts) return fmt::format("has more than {} parts", kMaxParts);
    if (slash == std::string_view::npos) return {};
    rest.remove_prefix(slash + 1);
  }
}

std::string parse_commit(const std::string& where, std::string_view text) {
  const Reader reader(where);
  const simdjson::padded_string padded = reader.padded(text);
  json::parser parser;
  json::document document;
  json::object root;
  reader.check(parser.iterate(padded).get(document));
  if (document.get_object().get(root)) reader.fail("expected a JSON object");
  std::optional<std::string> commit;
  for (auto entry : root) {
    json::field field;
    reader.check(std::move(entry).get(field));
    std::string_view key;
    reader.check(field.unescaped_key().get(key));
    if (key == "sha") commit = reader.text(field.value(), "sha");
  }
  if (checkpoint::has_more(document)) reader.fail("there is text after the closing brace");
  if (!commit || !is_commit(*commit))
    reader.fail(
        fmt::format("expected a commit in \"sha\", found {}", commit ? quote(*commit) : "none"));
  return *commit;
}

void parse_tree_page(const std::string& where, std::string_view text, std::vector<HubFile>& files) {
  const Reader reader(where);
  const simdjson::padded_string padded = reader.padded(text);
  json::parser parser;
  json::document document;
  json::array root;
  reader.check(parser.iterate(padded).get(document));
  if (document.get_array().get(root)) reader.fail("expected a JSON array");
  for (auto element : root) {
    json::value value;
    json::object entries;
    reader.check(element.get(value));
    if (value.get_object().get(entries)) reader.fail("an entry is not an object");
    auto file = EntryParser(reader).parse(entries);
    if (!file) continue;
    if (files.size() == kMaxFiles) reader.fail(fmt::format("more than {} files", kMaxFiles));
    files.push_back(std::move(*file));
  }
  if (checkpoint::has_more(document)) reader.fail("there is text after the closing bracket");
}

void check_paths_together(const std::string& where, std::vector<HubFile>& files) {
  const Reader reader(where);
  std::sort(files.begin(), files.end(),
            [](const HubFile& a, const HubFile& b) { return a.path < b.path; });
  // Folded path -> as written, for files and for every folder above one.
  std::unordered_map<std::string, std::string> names, folders;
  for (const HubFile& file : files) {
    const auto [other, fresh] = names.emplace(folded(file.path), file.path);
    if (!fresh)
      reader.fail(file.path == other->second
                      ? fmt::format("file {} is listed twice", quote(file.path))
                      : fmt::format("files {} and {} differ only in upper and lower case",
                                    quote(other->second), quote(file.path)));
    for (auto slash = file.path.find('/'); slash != std::string::npos;
         slash = file.path.find('/', slash + 1)) {
      const std::string folder = file.path.substr(0, slash);
      const auto [known, first] = folders.emplace(folded(folder), folder);
      if (!first && known->second != folder)
        reader.fail(fmt::format("folders {} and {} differ only in upper and lower case",
                                quote(known->second), quote(folder)));
    }
  }
  for (const HubFile& file : files)
    if (folders.contains(folded(file.path)))
      reader.fail(fmt::format("{} is a file and a folder", quote(file.path)));
}

std::string next_link(std::string_view header) {
  while (true) {
    const auto open = header.find('<');
    if (open == std::string_view::npos) return {};
    const auto close = header.find('>', open);
    if (close == std::string_view::npos) return {};
    const std::string_view address = header.substr(open + 1, close - open - 1);
    header.remove_prefix(close + 1);
    const std::string_view parameters = header.substr(0, header.find('<'));
    if (parameters.find("rel=\"next\"") != std::string_view::npos ||
        parameters.find("rel=next") != std::string_view::npos)
      return std::string(address);
  }
}

}  // namespace nibble::hub
