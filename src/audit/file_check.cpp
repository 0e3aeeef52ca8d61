#include "audit/file_check.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <array>
#include <span>
#include <string_view>

#include "audit/file_kind.h"
#include "audit/json_check.h"
#include "audit/magic.h"
#include "audit/pickle_walk.h"
#include "audit/template_scan.h"
#include "audit/zip_listing.h"
#include "checkpoint/quote.h"

namespace nibble::audit {
namespace {

using checkpoint::quote;

constexpr std::int64_t kMaxTokenizerBytes = 100'000'000;
constexpr std::int64_t kMaxJsonBytes = 16 << 20;

std::string read_all(const checkpoint::File& file) {
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(text)));
  return text;
}

// A name inside an archive that stands for a pickle, or nothing.
std::string pickle_inside(const std::vector<std::string>& names) {
  constexpr std::array<std::string_view, 6> kEndings = {".pkl", ".pickle", ".pt",
                                                        ".pth", ".ckpt",   ".bin"};
  for (const std::string& name : names) {
    for (const std::string_view ending : kEndings) {
      if (name.ends_with(ending)) return name;
    }
  }
  return {};
}

class FileCheck {
 public:
  FileCheck(const std::string& name, const checkpoint::File& file, std::vector<Finding>& findings)
      : name_(name), kind_(kind_of(name)), file_(file), findings_(findings) {}

  FileFacts run() {
    if (file_.size() == 0) {
      check_empty();
    } else if (check_magic()) {
      check_content();
    }
    check_name();
    return std::move(facts_);
  }

 private:
  void refuse(Code code, std::string message) { add(findings_, code, std::move(message)); }

  void check_empty() {
    if (kind_ == FileKind::kPython || kind_ == FileKind::kDocument ||
        kind_ == FileKind::kHubMetadata)
      return;
    add_damage(name_, findings_, Code::kEmptyFile, "0 bytes");
  }

  // False: what the file is has been said, and its content as the name promises it need not be looked at.
  bool check_magic() {
    std::vector<std::byte> head(
        static_cast<std::size_t>(std::min<std::int64_t>(file_.size(), kPickleWindow_bytes)));
    file_.read_at(0, head);
    const auto first = std::span(head).first(std::min(head.size(), kMagicBytes));
    if (kind_ == FileKind::kSafetensors && looks_like_safetensors(first)) return !hides_archive();
    const Magic magic = magic_of(first);
    if (magic == Magic::kLfsPointer) {
      add_damage(name_, findings_, Code::kLfsPointer,
                 "a Git LFS pointer stands in for the file: run `git lfs pull` in the folder");
      return false;
    }
    if (is_machine_code(magic)) {
      refuse(Code::kBinary, std::string(magic_name(magic)));
      return false;
    }
    if (is_container(magic)) {
      check_container(magic);
      return false;
    }
    if (magic == Magic::kScript && kind_ != FileKind::kScript && kind_ != FileKind::kPython &&
        kind_ != FileKind::kEncoder) {
      refuse(Code::kDisguisedScript,
             "begins with #!, which makes it a program; its name does not say so");
      return false;
    }
    if (magic == Magic::kHdf5) {
      refuse(Code::kCodeFormat, "HDF5: Keras models in this format carry Python code");
      return false;
    }
    if (magic == Magic::kNumpy && numpy_objects(first)) {
      refuse(Code::kPickle, "a NumPy array of objects, which are stored as a pickle");
      return false;
    }
    if (magic == Magic::kGguf || magic == Magic::kNumpy) {
      add(findings_, Code::kOtherFormat, fmt::format("{}, never read", magic_name(magic)));
      return false;
    }
    if (const PickleWalk walk = walk_pickle(head); walk.is_pickle) {
      refuse(Code::kPickle,
             walk.imports.empty()
                 ? "a pickle by its first bytes"
                 : fmt::format("a pickle by its first bytes; it imports {}", walk.imports));
      return false;
    }
    return !hides_archive();
  }

  static bool numpy_objects(std::span<const std::byte> head) {
    const std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
    const std::size_t at = text.find("'descr'");
    const std::string_view rest = at == std::string_view::npos ? text : text.substr(at, 160);
    return rest.find("|O") != std::string_view::npos || rest.find("'O'") != std::string_view::npos;
  }

  void check_container(Magic magic) {
    if (magic != Magic::kZip)
      return refuse(Code::kArchive,
                    fmt::format("{}: what is in it cannot be judged", magic_name(magic)));
    const auto names = list_zip(file_);
    const std::string pickle = names ? pickle_inside(*names) : std::string();
    if (!pickle.empty())
      return refuse(Code::kPickle,
                    fmt::format("a zip archive with a pickle in it, {}", quote(pickle)));
    refuse(Code::kArchive,
           names ? fmt::format("a zip archive with {} files", names->size())
                 : "a zip archive whose directory is broken: what is in it cannot be judged");
  }

  // An archive is found by its end, so one may follow something harmless.
  bool hides_archive() {
    const auto names = list_zip(file_);
    if (!names || names->empty()) return false;
    refuse(Code::kArchive,
           fmt::format("a zip archive with {} files hides behind the first bytes", names->size()));
    return true;
  }

  void check_content() {
    switch (kind_) {
      case FileKind::kSafetensors:
        facts_.tensors = check_safetensors(file_, findings_);
        return;
      case FileKind::kJson:
        return check_json_file();
      case FileKind::kTemplate:
        return check_template_file();
      default:
        return;
    }
  }

  bool small_enough(std::int64_t most) {
    if (file_.size() <= most) return true;
    add_damage(name_, findings_, Code::kTooLarge,
               fmt::format("{} bytes, expected at most {}", file_.size(), most));
    return false;
  }

  void check_json_file() {
    const bool is_index = name_ == checkpoint::kShardIndexName;
    const bool is_large = is_index || name_ == "tokenizer.json";
    if (!small_enough(is_large ? kMaxTokenizerBytes : kMaxJsonBytes)) return;
    const std::string text = read_all(file_);
    JsonFacts facts = check_json(name_, text, findings_);
    facts_.modules = std::move(facts.modules);
    if (is_index && !has_refusal(findings_))
      facts_.index = check_index(file_.path(), text, findings_);
  }

  void check_template_file() {
    if (!small_enough(static_cast<std::int64_t>(kMaxTemplateBytes))) return;
    const std::string text = read_all(file_);
    if (!simdjson::validate_utf8(text.data(), text.size()))
      add(findings_, Code::kInvalidUtf8, "expected UTF-8, found other bytes");
    check_template(text, "", findings_);
  }

  bool found(Code code) const {
    return std::any_of(findings_.begin(), findings_.end(),
                       [code](const Finding& finding) { return finding.code == code; });
  }

  // What a loader makes of the name, whatever is in the file.
  void check_name() {
    switch (kind_) {
      case FileKind::kPickle:
        if (!found(Code::kPickle) && !found(Code::kBinary))
          refuse(Code::kPickle, "loaders unpickle files of this name, which runs what is in them");
        return;
      case FileKind::kCodeFormat:
        if (!found(Code::kCodeFormat) && !found(Code::kBinary) && !found(Code::kPickle))
          refuse(Code::kCodeFormat, "a format that can carry code");
        return;
      case FileKind::kOtherFormat:
        if (findings_.empty())
          add(findings_, Code::kOtherFormat, "another model format, never read");
        return;
      case FileKind::kEncoder:
        return add(findings_, Code::kEncoderData, "read as data, never run");
      case FileKind::kPython:
        return add(findings_, Code::kPythonCode, "never run by nibble");
      case FileKind::kScript:
        return add(findings_, Code::kScript, "never run by nibble");
      case FileKind::kPartial:
        return add(findings_, Code::kPartialDownload, "a download that did not end, never read");
      case FileKind::kUnknown:
        if (findings_.empty())
          add(findings_, Code::kUnknownFile, "no part of a checkpoint, never read");
        return;
      default:
        return;
    }
  }

  const std::string& name_;
  const FileKind kind_;
  const checkpoint::File& file_;
  std::vector<Finding>& findings_;
  FileFacts facts_;
};

}  // namespace

FileFacts check_file(const std::string& name, const checkpoint::File& file,
                     std::vector<Finding>& findings) {
  return FileCheck(name, file, findings).run();
}

}  // namespace nibble::audit
