#include "hub/lock_file.h"

#include <fmt/format.h>
#include <simdjson.h>

#include "checkpoint/json_guard.h"
#include "checkpoint/quote.h"
#include "hub/repo.h"
#include "nibble/status.h"

namespace nibble::hub {
namespace {

namespace json = simdjson::ondemand;

// Paths have neither control characters nor backslashes (path_problem), so only the quote needs care.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"') out += '\\';
    out += c;
  }
  return out + "\"";
}

class LockParser {
 public:
  explicit LockParser(const std::string& where) : where_(where) {}

  LockFile parse(const simdjson::padded_string& text) {
    json::parser parser;
    json::document document;
    json::object root;
    if (const auto problem = checkpoint::json_problem(text)) fail(*problem);
    check(parser.iterate(text).get(document));
    if (document.get_object().get(root)) fail("expected a JSON object");
    std::uint64_t version = 0;
    for (auto entry : root) {
      json::field field;
      check(std::move(entry).get(field));
      const std::string key = key_of(field);
      if (key == "version") {
        if (field.value().get_uint64().get(version)) fail("version is no number");
      } else if (key == "repo") {
        lock_.repo = text_of(field, "repo");
      } else if (key == "revision") {
        lock_.commit = text_of(field, "revision");
      } else if (key == "files") {
        read_files(field.value());
      }
    }
    if (checkpoint::has_more(document)) fail("there is text after the closing brace");
    if (version != 1) fail(fmt::format("expected version 1, found {}", version));
    if (!is_commit(lock_.commit)) fail("revision: expected a commit");
    return std::move(lock_);
  }

 private:
  [[noreturn]] void fail(const std::string& problem) const {
    throw CheckpointError(fmt::format("{}: {}", where_, problem));
  }

  void check(simdjson::error_code error) const {
    if (error) fail(fmt::format("broken JSON ({})", simdjson::error_message(error)));
  }

  std::string key_of(json::field& field) const {
    std::string_view key;
    check(field.unescaped_key().get(key));
    return std::string(key);
  }

  std::string text_of(json::field& field, const char* key) const {
    std::string_view text;
    if (field.value().get_string().get(text)) fail(fmt::format("{} is not text", key));
    return std::string(text);
  }

  void read_files(json::value value) {
    json::object entries;
    if (value.get_object().get(entries)) fail("files is not an object");
    for (auto entry : entries) {
      json::field field;
      check(std::move(entry).get(field));
      const std::string path = key_of(field);
      if (const std::string problem = path_problem(path); !problem.empty())
        fail(fmt::format("file name {} {}", checkpoint::quote(path), problem));
      if (lock_.files.size() == kMaxFiles) fail(fmt::format("more than {} files", kMaxFiles));
      if (!lock_.files.emplace(path, read_file(path, field.value())).second)
        fail(fmt::format("file {} occurs twice", checkpoint::quote(path)));
    }
  }

  HubFile read_file(const std::string& path, json::value value) const {
    HubFile file{path, -1, {}};
    json::object entries;
    if (value.get_object().get(entries))
      fail(fmt::format("file {} is not an object", checkpoint::quote(path)));
    for (auto entry : entries) {
      json::field field;
      check(std::move(entry).get(field));
      const std::string key = key_of(field);
      std::uint64_t size = 0;
      if (key == "sha256") {
        file.hash.sha256 = text_of(field, "sha256");
      } else if (key == "git_blob") {
        file.hash.git_blob = text_of(field, "git_blob");
      } else if (key == "size" && !field.value().get_uint64().get(size) &&
                 size <= static_cast<std::uint64_t>(kMaxFileBytes)) {
        file.size = static_cast<std::int64_t>(size);
      }
    }
    const bool large = is_hex(file.hash.sha256, 64) && file.hash.git_blob.empty();
    const bool small = is_hex(file.hash.git_blob, 40) && file.hash.sha256.empty();
    if (file.size < 0 || (!large && !small))
      fail(fmt::format("file {}: expected size, and sha256 or git_blob", checkpoint::quote(path)));
    return file;
  }

  const std::string& where_;
  LockFile lock_;
};

}  // namespace

std::string lock_file_text(const LockFile& lock) {
  std::string text =
      fmt::format("{{\n  \"version\": 1,\n  \"repo\": {},\n  \"revision\": {},\n  \"files\": {{",
                  quoted(lock.repo), quoted(lock.commit));
  const char* separator = "\n";
  for (const auto& [path, file] : lock.files) {
    text +=
        fmt::format("{}    {}: {{\"size\": {}, \"{}\": {}}}", separator, quoted(path), file.size,
                    file.hash.sha256.empty() ? "git_blob" : "sha256", quoted(file.hash.hex()));
    separator = ",\n";
  }
  return text + "\n  }\n}\n";
}

LockFile parse_lock_file(const std::string& where, std::string_view text) {
  return LockParser(where).parse(simdjson::padded_string(text));
}

}  // namespace nibble::hub
