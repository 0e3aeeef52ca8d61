// What an audit can find. The names are stable: scripts match on them. docs/audit.md explains each, and codes_test holds that
// table against this one.
#pragma once

#include <optional>
#include <span>
#include <string_view>

namespace nibble::audit {

// A refusal makes the audit exit with 3; a note never does.
enum class Severity { kNote, kRefusal };

enum class Code {
  // Runs code in some program that loads it.
  kPickle,
  kArchive,
  kBinary,
  kDisguisedScript,
  kCodeFormat,
  kAutoMap,
  kCodeReference,
  kTemplateAttributeWalk,
  kTemplateImport,
  // Leads outside the repository, or is no file.
  kPathTraversal,
  kLinkEscapes,
  kLinkBroken,
  kLinkRefused,
  kSpecialFile,
  kUnreadable,
  kBadName,
  kCaseCollision,
  kTooManyFiles,
  // Not whole.
  kLfsPointer,
  kEmptyFile,
  kTruncated,
  kSafetensorsBroken,
  kUnknownDtype,
  kDuplicateTensor,
  kMissingShard,
  kIndexBroken,
  kIndexMismatch,
  kMissingFile,
  kNoWeights,
  kJsonBroken,
  kJsonNested,
  kTooLarge,
  kInvalidUtf8,
  kHashMismatch,
  kSizeMismatch,
  kLockBroken,
  // Worth knowing.
  kEncoderData,
  kPythonCode,
  kScript,
  kGitFolder,
  kOtherFormat,
  kUnknownFile,
  kNonAsciiName,
  kHardLink,
  kTrailingBytes,
  kExtraShard,
  kTotalSize,
  kTemplateBroken,
  kPartialDownload,
  kNotInLock,
  kNoHashes,
  kHashSkipped,
};

struct CodeInfo {
  Code code;
  std::string_view name;
  Severity severity;  // the usual one: a few refusals are notes where the file does not matter
};

std::span<const CodeInfo> all_codes();
std::string_view name_of(Code code);
Severity severity_of(Code code);
std::optional<Code> code_named(std::string_view name);  // nothing: no such code

}  // namespace nibble::audit
