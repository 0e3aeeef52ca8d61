#include "audit/expected_hashes.h"

#include <fmt/format.h>
#include <simdjson.h>

#include "audit/file_kind.h"
#include "audit/name_check.h"
#include "checkpoint/folder.h"
#include "checkpoint/json_guard.h"
#include "checkpoint/quote.h"

namespace nibble::audit {
namespace {

namespace json = simdjson::ondemand;
using checkpoint::quote;

// Why a relative name cannot be a file below the folder, or nothing.
std::optional<std::string> relative_name_problem(std::string_view name) {
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('/', begin), name.size());
    if (auto problem = checkpoint::plain_name_problem(name.substr(begin, end - begin)))
      return problem;
    begin = end + 1;
  }
  return std::nullopt;
}

class LockParser {
 public:
  explicit LockParser(std::vector<Finding>& findings) : findings_(findings) {}

  LockFile parse(std::string_view text) {
    if (const auto problem = checkpoint::json_problem(text)) {
      broken(*problem);
      return {};
    }
    const simdjson::padded_string padded(text);
    json::parser parser;
    json::document document;
    json::object root;
    if (parser.iterate(padded).get(document) || document.get_object().get(root)) {
      broken("expected a JSON object");
      return {};
    }
    for (auto entry : root) {
      json::field field;
      std::string_view key;
      if (std::move(entry).get(field) || field.unescaped_key().get(key)) return cut();
      if (key == "version") {
        std::int64_t version = 0;
        if (field.value().get_int64().get(version) || version != 1)
          broken("version: expected 1, the only one known");
        version_seen_ = true;
      } else if (key == "files") {
        files_seen_ = true;
        json::object files;
        if (field.value().get_object().get(files)) {
          broken("files: expected an object");
          continue;
        }
        if (!read_files(files)) return cut();
      }
    }
    if (checkpoint::has_more(document)) broken("there is text after the closing brace");
    if (!version_seen_) broken("version is missing");
    if (!files_seen_) broken("files is missing");
    return std::move(lock_);
  }

 private:
  void broken(std::string message) { add(findings_, Code::kLockBroken, std::move(message)); }

  LockFile cut() {
    broken("broken JSON");
    return std::move(lock_);
  }

  // False: broken JSON.
  bool read_files(json::object files) {
    for (auto entry : files) {
      json::field field;
      std::string_view key;
      if (std::move(entry).get(field) || field.unescaped_key().get(key)) return false;
      const std::string name(key);
      json::object members;
      if (field.value().get_object().get(members)) {
        broken(fmt::format("{}: expected an object", quote(name)));
        continue;
      }
      LockedFile locked;
      if (!read_members(name, members, locked)) return false;
      if (const auto problem = relative_name_problem(name)) {
        add(findings_, Code::kPathTraversal,
            fmt::format("files: the name {} {}; expected a file of this folder", quote(name),
                        *problem));
      } else if (!lock_.emplace(name, locked).second) {
        broken(fmt::format("{} occurs twice", quote(name)));
      }
    }
    return true;
  }

  bool read_members(const std::string& name, json::object members, LockedFile& locked) {
    for (auto entry : members) {
      json::field field;
      std::string_view key;
      if (std::move(entry).get(field) || field.unescaped_key().get(key)) return false;
      if (key == "size") {
        std::int64_t size = 0;
        if (field.value().get_int64().get(size) || size < 0)
          broken(fmt::format("{}: size: expected a number of bytes", quote(name)));
        else
          locked.size = size;
      } else if (key == "sha256" || key == "git_blob") {
        const HashKind kind = key == "sha256" ? HashKind::kSha256 : HashKind::kGitBlob;
        std::string_view hex;
        HashKind found = kind;
        if (field.value().get_string().get(hex) || !hash_kind_of(std::string(hex), found) ||
            found != kind)
          broken(fmt::format("{}: {}: expected {} hex digits", quote(name),
                             kind == HashKind::kSha256 ? "sha256" : "git_blob",
                             kind == HashKind::kSha256 ? 64 : 40));
        else
          locked.hash = ExpectedHash{kind, std::string(hex), std::string(kLockName)};
      }
    }
    return true;
  }

  std::vector<Finding>& findings_;
  bool version_seen_ = false;
  bool files_seen_ = false;
  LockFile lock_;
};

}  // namespace

LockFile parse_lock(std::string_view text, std::vector<Finding>& findings) {
  return LockParser(findings).parse(text);
}

std::optional<ExpectedHash> parse_hub_metadata(std::string_view text) {
  const std::size_t first = text.find('\n');
  if (first == std::string_view::npos) return std::nullopt;
  std::string_view etag = text.substr(first + 1);
  etag = etag.substr(0, etag.find_first_of("\r\n"));
  if (etag.starts_with("W/")) etag.remove_prefix(2);
  if (etag.size() > 2 && etag.starts_with('"') && etag.ends_with('"'))
    etag = etag.substr(1, etag.size() - 2);
  ExpectedHash hash;
  hash.hex = etag;
  hash.source = "the hub client's notes";
  if (!hash_kind_of(hash.hex, hash.kind)) return std::nullopt;
  return hash;
}

}  // namespace nibble::audit
