// What a file of a checkpoint is for, by its name.
#pragma once

#include <string_view>

namespace nibble::audit {

enum class FileKind {
  kSafetensors,
  kJson,
  kTemplate,     // Jinja
  kEncoder,      // encoding/*.py, which nibble reads as data
  kPython,       // .py elsewhere, notebooks
  kScript,       // of a shell, of JavaScript, ...
  kPickle,       // a name that loaders unpickle
  kCodeFormat,   // a format that can carry code
  kOtherFormat,  // another model format, without code
  kPartial,      // what a broken download leaves
  kLock,         // nibble.lock.json
  kHubMetadata,  // what a hub's client notes beside a download
  kDocument,     // text, pictures, licences
  kUnknown,
};

inline constexpr std::string_view kLockName = "nibble.lock.json";
// NAME.metadata in here holds revision, hash and time of the download of NAME, a line each.
inline constexpr std::string_view kHubMetadataFolder = ".cache/huggingface/download/";

// `name` is relative to the model's folder, with slashes.
FileKind kind_of(std::string_view name);

// Whether nibble or another server reads the file to serve: damage to it is a refusal, to others a note.
bool matters(std::string_view name);

bool is_top_level(std::string_view name);

}  // namespace nibble::audit
