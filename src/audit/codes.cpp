#include "audit/codes.h"

#include <algorithm>
#include <array>

#include "base/check.h"

namespace nibble::audit {
namespace {

constexpr Severity kRefusal = Severity::kRefusal;
constexpr Severity kNote = Severity::kNote;

constexpr std::array kCodes = {
    CodeInfo{Code::kPickle, "pickle", kRefusal},
    CodeInfo{Code::kArchive, "archive", kRefusal},
    CodeInfo{Code::kBinary, "binary", kRefusal},
    CodeInfo{Code::kDisguisedScript, "disguised_script", kRefusal},
    CodeInfo{Code::kCodeFormat, "code_format", kRefusal},
    CodeInfo{Code::kAutoMap, "auto_map", kRefusal},
    CodeInfo{Code::kCodeReference, "code_reference", kRefusal},
    CodeInfo{Code::kTemplateAttributeWalk, "template_attribute_walk", kRefusal},
    CodeInfo{Code::kTemplateImport, "template_import", kRefusal},
    CodeInfo{Code::kPathTraversal, "path_traversal", kRefusal},
    CodeInfo{Code::kLinkEscapes, "link_escapes", kRefusal},
    CodeInfo{Code::kLinkBroken, "link_broken", kRefusal},
    CodeInfo{Code::kLinkRefused, "link_refused", kRefusal},
    CodeInfo{Code::kSpecialFile, "special_file", kRefusal},
    CodeInfo{Code::kUnreadable, "unreadable", kRefusal},
    CodeInfo{Code::kBadName, "bad_name", kRefusal},
    CodeInfo{Code::kCaseCollision, "case_collision", kRefusal},
    CodeInfo{Code::kTooManyFiles, "too_many_files", kRefusal},
    CodeInfo{Code::kLfsPointer, "lfs_pointer", kRefusal},
    CodeInfo{Code::kEmptyFile, "empty_file", kRefusal},
    CodeInfo{Code::kTruncated, "truncated", kRefusal},
    CodeInfo{Code::kSafetensorsBroken, "safetensors_broken", kRefusal},
    CodeInfo{Code::kUnknownDtype, "unknown_dtype", kRefusal},
    CodeInfo{Code::kDuplicateTensor, "duplicate_tensor", kRefusal},
    CodeInfo{Code::kMissingShard, "missing_shard", kRefusal},
    CodeInfo{Code::kIndexBroken, "index_broken", kRefusal},
    CodeInfo{Code::kIndexMismatch, "index_mismatch", kRefusal},
    CodeInfo{Code::kMissingFile, "missing_file", kRefusal},
    CodeInfo{Code::kNoWeights, "no_weights", kRefusal},
    CodeInfo{Code::kJsonBroken, "json_broken", kRefusal},
    CodeInfo{Code::kJsonNested, "json_nested", kRefusal},
    CodeInfo{Code::kTooLarge, "too_large", kRefusal},
    CodeInfo{Code::kInvalidUtf8, "invalid_utf8", kRefusal},
    CodeInfo{Code::kHashMismatch, "hash_mismatch", kRefusal},
    CodeInfo{Code::kSizeMismatch, "size_mismatch", kRefusal},
    CodeInfo{Code::kLockBroken, "lock_broken", kRefusal},
    CodeInfo{Code::kEncoderData, "encoder_data", kNote},
    CodeInfo{Code::kPythonCode, "python_code", kNote},
    CodeInfo{Code::kScript, "script", kNote},
    CodeInfo{Code::kGitFolder, "git_folder", kNote},
    CodeInfo{Code::kOtherFormat, "other_format", kNote},
    CodeInfo{Code::kUnknownFile, "unknown_file", kNote},
    CodeInfo{Code::kNonAsciiName, "non_ascii_name", kNote},
    CodeInfo{Code::kHardLink, "hard_link", kNote},
    CodeInfo{Code::kTrailingBytes, "trailing_bytes", kNote},
    CodeInfo{Code::kExtraShard, "extra_shard", kNote},
    CodeInfo{Code::kTotalSize, "total_size", kNote},
    CodeInfo{Code::kTemplateBroken, "template_broken", kNote},
    CodeInfo{Code::kPartialDownload, "partial_download", kNote},
    CodeInfo{Code::kNotInLock, "not_in_lock", kNote},
    CodeInfo{Code::kNoHashes, "no_hashes", kNote},
    CodeInfo{Code::kHashSkipped, "hash_skipped", kNote},
};

const CodeInfo& info(Code code) {
  const auto found =
      std::find_if(kCodes.begin(), kCodes.end(), [&](const CodeInfo& c) { return c.code == code; });
  NIBBLE_CHECK(found != kCodes.end(), "code {}", static_cast<int>(code));
  return *found;
}

}  // namespace

std::span<const CodeInfo> all_codes() {
  return kCodes;
}

std::string_view name_of(Code code) {
  return info(code).name;
}

Severity severity_of(Code code) {
  return info(code).severity;
}

std::optional<Code> code_named(std::string_view name) {
  for (const CodeInfo& code : kCodes) {
    if (code.name == name) return code.code;
  }
  return std::nullopt;
}

}  // namespace nibble::audit
