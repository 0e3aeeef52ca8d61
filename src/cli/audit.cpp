// `nibble audit`: is this checkpoint safe and whole? The report goes to stdout, progress to stderr.
#include "audit/audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "api/json_writer.h"
#include "audit/name_check.h"
#include "base/log.h"
#include "cli/commands.h"
#include "cli/model_path.h"
#include "cli/progress.h"
#include "nibble/status.h"

namespace nibble::cli {
namespace {

using audit::Finding;
using audit::Severity;

std::string_view severity_name(Severity severity) {
  return severity == Severity::kRefusal ? "refusal" : "note";
}

std::string_view hash_name(audit::HashState state) {
  switch (state) {
    case audit::HashState::kNone:
      return "none";
    case audit::HashState::kSkipped:
      return "skipped";
    case audit::HashState::kVerified:
      return "verified";
    case audit::HashState::kMismatch:
      return "mismatch";
  }
  return "none";
}

void write_findings(api::JsonWriter& json, const std::vector<Finding>& findings) {
  json.key("findings").begin_array();
  for (const Finding& finding : findings) {
    json.begin_object()
        .member("code", audit::name_of(finding.code))
        .member("severity", severity_name(finding.severity))
        .member("message", finding.message)
        .member("where", finding.where)
        .end_object();
  }
  json.end_array();
}

std::string as_json(const audit::Report& report) {
  std::string text;
  api::JsonWriter json(text);
  json.begin_object()
      .member("model", report.model)
      .member("verdict", audit::refused(report) ? "refused" : "ok")
      .key("files")
      .begin_array();
  for (const audit::FileReport& file : report.files) {
    json.begin_object()
        .member("name", audit::printable(file.name))
        .member("size", file.size)
        .member("verdict", audit::verdict(file))
        .member("hash", hash_name(file.hash));
    write_findings(json, file.findings);
    json.end_object();
  }
  json.end_array();
  write_findings(json, report.findings);
  json.end_object();
  return text + "\n";
}

void print_findings(std::string& text, const std::vector<Finding>& findings) {
  for (const Finding& finding : findings) {
    text += fmt::format("    {} {}: {}{}\n", severity_name(finding.severity),
                        audit::name_of(finding.code),
                        finding.where.empty() ? "" : finding.where + ": ", finding.message);
  }
}

std::string as_text(const audit::Report& report) {
  std::size_t width = 2;
  for (const audit::FileReport& file : report.files)
    width = std::max(width, audit::verdict(file).size());
  std::string text;
  std::size_t refused_files = 0, verified = 0;
  for (const audit::FileReport& file : report.files) {
    text += fmt::format("{:<{}}  {:>15}  {}\n", audit::verdict(file), width, file.size,
                        audit::printable(file.name));
    print_findings(text, file.findings);
    refused_files += audit::has_refusal(file.findings) ? 1 : 0;
    verified += file.hash == audit::HashState::kVerified ? 1 : 0;
  }
  if (!report.findings.empty()) text += "the checkpoint as a whole\n";
  print_findings(text, report.findings);
  text += fmt::format("{}: {}: {} files, {} refused, {} with verified hashes\n",
                      audit::printable(report.model), audit::refused(report) ? "refused" : "ok",
                      report.files.size(), refused_files, verified);
  return text;
}

struct State {
  std::string model;
  std::vector<std::string> allowed;
  bool json = false;
  bool no_hash = false;
};

int run_audit(const State& state) {
  init_log("warn");
  audit::Options options;
  options.hash_large_files = !state.no_hash;
  for (const std::string& name : state.allowed) {
    const auto code = audit::code_named(name);
    if (!code)
      throw Error(ExitCode::kUsage,
                  fmt::format("--allow {}: no such code; docs/audit.md lists them", name));
    options.allowed.push_back(*code);
  }
  const ModelPath path = require_model(state.model);
  const audit::Report report = [&] {
    Progress progress("hashing");
    return audit::audit(path.folder.string(), options,
                        [&](double fraction) { progress.show(fraction); });
  }();
  std::cout << (state.json ? as_json(report) : as_text(report)) << std::flush;
  return static_cast<int>(audit::refused(report) ? ExitCode::kRefusedCheckpoint : ExitCode::kOk);
}

}  // namespace

Command add_audit(CLI::App& app) {
  const auto state = std::make_shared<State>();
  CLI::App* command =
      app.add_subcommand("audit", "is this checkpoint safe and whole: a verdict for each file");
  command->add_option("MODEL", state->model, "a folder, OWNER/NAME in the hub cache, or tiny")
      ->required();
  command->add_flag("--json", state->json, "the report as JSON");
  command->add_flag("--no-hash", state->no_hash, "do not hash files over 16 MiB");
  command
      ->add_option("--allow", state->allowed,
                   "make refusals of this code notes; may be repeated, or a list with commas")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->option_text("CODE");
  command->footer(
      "Exit codes: 0 clean, or only notes; 2 bad usage; 3 refused. docs/audit.md explains the "
      "codes.");
  return {command, [state] { return run_audit(*state); }};
}

}  // namespace nibble::cli
