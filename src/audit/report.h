// What an audit says: a verdict for the checkpoint and for each of its files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "audit/codes.h"

namespace nibble::audit {

struct Finding {
  Code code;
  Severity severity;
  std::string message;  // printable ASCII: what was expected, what was found
  std::string where;    // inside the file: a JSON path, a tensor, a template's line; may be empty
};

// How a file's bytes compare with what is known of them.
enum class HashState {
  kNone,      // nothing to compare with
  kSkipped,   // --no-hash
  kVerified,  // all known hashes agree
  kMismatch,
};

struct FileReport {
  std::string name;       // relative to the model's folder, with slashes, as in the file system
  std::int64_t size = 0;  // bytes; 0 where there are none to read
  HashState hash = HashState::kNone;
  std::vector<Finding> findings;
};

struct Report {
  std::string model;              // the folder, as the user wrote it
  std::vector<FileReport> files;  // sorted by name
  std::vector<Finding> findings;  // about the checkpoint as a whole
};

// Adds a finding of the code's usual severity, or of another.
void add(std::vector<Finding>& findings, Code code, std::string message, std::string where = {});
void add_note(std::vector<Finding>& findings, Code code, std::string message,
              std::string where = {});

bool has_refusal(const std::vector<Finding>& findings);
bool refused(const Report& report);

// The code of the first refusal, else of the first note, else "ok".
std::string_view verdict(const FileReport& file);

}  // namespace nibble::audit
