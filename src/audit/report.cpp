#include "audit/report.h"

#include <algorithm>
#include <utility>

namespace nibble::audit {

void add(std::vector<Finding>& findings, Code code, std::string message, std::string where) {
  findings.push_back({code, severity_of(code), std::move(message), std::move(where)});
}

void add_note(std::vector<Finding>& findings, Code code, std::string message, std::string where) {
  findings.push_back({code, Severity::kNote, std::move(message), std::move(where)});
}

bool has_refusal(const std::vector<Finding>& findings) {
  return std::any_of(findings.begin(), findings.end(),
                     [](const Finding& finding) { return finding.severity == Severity::kRefusal; });
}

bool refused(const Report& report) {
  return has_refusal(report.findings) ||
         std::any_of(report.files.begin(), report.files.end(),
                     [](const FileReport& file) { return has_refusal(file.findings); });
}

std::string_view verdict(const FileReport& file) {
  for (const Finding& finding : file.findings) {
    if (finding.severity == Severity::kRefusal) return name_of(finding.code);
  }
  return file.findings.empty() ? "ok" : name_of(file.findings.front().code);
}

}  // namespace nibble::audit
