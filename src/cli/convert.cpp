// `nibble convert`: a checkpoint in another format, and whether that was exact.
#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <csignal>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "api/json_writer.h"
#include "base/thread_pool.h"
#include "cli/commands.h"
#include "cli/model_path.h"
#include "cli/progress.h"
#include "convert/convert.h"
#include "nibble/status.h"

namespace nibble::cli {
namespace {

using convert::ConvertReport;
using convert::KindReport;
using convert::MatrixError;
using convert::MatrixReport;

volatile std::sig_atomic_t interrupted = 0;

struct ConvertArguments {
  std::string source, destination, to;
  int threads = 0;
  bool json = false;
  bool tensors = false;
};

std::string accuracy(const MatrixError& error) {
  if (error.exact()) return "exact";
  return fmt::format("{} of {} blocks inexact, relative RMS {:.4g}, worst {:.4g}",
                     error.inexact_blocks, error.blocks, error.relative_rms(), error.worst);
}

void print_text(const ConvertReport& report, bool tensors) {
  if (tensors)
    for (const MatrixReport& m : report.matrices)
      fmt::print(
          "{}: {} -> {}: {}{}\n", m.name, m.from, m.to, accuracy(m.error),
          m.error.exact() ? "" : fmt::format(" at [{}, {}]", m.error.worst_row, m.error.worst_col));
  std::size_t kind = 10, from = 4, to = 2;
  for (const KindReport& row : report.kinds) {
    kind = std::max(kind, row.kind.size());
    from = std::max(from, row.from.size());
    to = std::max(to, row.to.size());
  }
  const auto line = [&](const auto&... cells) {
    fmt::print("{:<{}}  {:<{}}  {:<{}}  {:>6}  {}\n", cells...);
  };
  line("layer kind", kind, "from", from, "to", to, "count", "accuracy");
  for (const KindReport& row : report.kinds)
    line(row.kind, kind, row.from, from, row.to, to, row.matrices,
         accuracy(row.error) +
             (row.worst_matrix.empty() ? "" : fmt::format(" in {}", row.worst_matrix)));
  fmt::print("kept: {} tensors, {} bytes\n", report.kept_tensors, report.kept_bytes);
  for (const std::string& note : report.notes) fmt::print("note: {}\n", note);
  for (const std::string& name : report.left_out) fmt::print("left out: {}\n", name);
  fmt::print("{}: {} tensor bytes in {} shard{}, from {}\n", report.destination, report.bytes,
             report.shards, report.shards == 1 ? "" : "s", report.source_bytes);
  fmt::print("verdict: {}\n", report.verdict());
}

void write_error(api::JsonWriter& json, const MatrixError& error) {
  json.member("exact", error.exact())
      .member("values", error.values)
      .member("inexact_values", error.inexact_values)
      .member("blocks", error.blocks)
      .member("inexact_blocks", error.inexact_blocks);
  json.key("relative_rms").number(error.relative_rms());
  json.key("worst").number(error.worst);
}

void write_lines(api::JsonWriter& json, const char* key, const std::vector<std::string>& lines) {
  json.key(key).begin_array();
  for (const std::string& line : lines) json.string(line);
  json.end_array();
}

void print_json(const ConvertReport& report) {
  std::string text;
  api::JsonWriter json(text);
  json.begin_object()
      .member("source", report.source)
      .member("destination", report.destination)
      .member("to", std::string(target_name(report.target)))
      .member("verdict", report.verdict())
      .member("shards", report.shards)
      .member("source_bytes", report.source_bytes)
      .member("bytes", report.bytes)
      .member("kept_tensors", report.kept_tensors)
      .member("kept_bytes", report.kept_bytes)
      .member("threads", report.threads)
      .member("memory_bytes", report.memory_bytes);
  write_error(json, report.total);
  json.key("kinds").begin_array();
  for (const KindReport& row : report.kinds) {
    json.begin_object()
        .member("kind", row.kind)
        .member("from", row.from)
        .member("to", row.to)
        .member("matrices", row.matrices)
        .member("inexact_matrices", row.inexact_matrices);
    write_error(json, row.error);
    json.member("worst_matrix", row.worst_matrix).end_object();
  }
  json.end_array().key("matrices").begin_array();
  for (const MatrixReport& m : report.matrices) {
    json.begin_object()
        .member("name", m.name)
        .member("kind", m.kind)
        .member("from", m.from)
        .member("to", m.to);
    write_error(json, m.error);
    json.key("worst_at").begin_array().number(m.error.worst_row).number(m.error.worst_col);
    json.end_array()
        .member("moved_blocks", m.stats.moved_blocks)
        .member("requantised_blocks", m.stats.requantised_blocks)
        .member("span", m.stats.span)
        .end_object();
  }
  json.end_array();
  write_lines(json, "files", report.files);
  write_lines(json, "left_out", report.left_out);
  write_lines(json, "notes", report.notes);
  json.end_object();
  fmt::print("{}\n", text);
}

int run_convert(const ConvertArguments& arguments) {
  // Matrices come and go, a few at a time. The C library would learn to keep them in its heap, and cut
  // that to pieces: ten times the memory of the jobs. From the system they come and go for real.
  mallopt(M_MMAP_THRESHOLD, 256 << 10);
  convert::ConvertOptions options;
  options.source = require_model(arguments.source).folder.string();
  options.destination = arguments.destination;
  options.target = *convert::find_target(arguments.to);  // the parser knows no other word
  options.threads = arguments.threads > 0 ? arguments.threads : available_cpus();
  for (const int number : {SIGINT, SIGTERM, SIGHUP})
    std::signal(number, [](int) { interrupted = 1; });
  std::signal(SIGXFSZ, SIG_IGN);  // a file-size limit is an error of write(), not the end
  options.cancelled = [] { return interrupted != 0; };
  const ConvertReport report = [&] {
    Progress progress("converting");
    options.progress = [&](double fraction) { progress.show(fraction); };
    return convert::convert(options);
  }();
  if (arguments.json)
    print_json(report);
  else
    print_text(report, arguments.tensors);
  return static_cast<int>(ExitCode::kOk);
}

}  // namespace

Command add_convert(CLI::App& app) {
  auto arguments = std::make_shared<ConvertArguments>();
  CLI::App* command =
      app.add_subcommand("convert", "A checkpoint in another format, and whether that was exact");
  command->add_option("SRC", arguments->source, "A folder, OWNER/NAME in the hub cache, or 'tiny'")
      ->required();
  command
      ->add_option("DST", arguments->destination,
                   "Folder for the result; it must not exist, or be empty")
      ->required();
  std::vector<std::string> names(convert::kTargets.size());
  std::ranges::transform(convert::kTargets, names.begin(),
                         [](convert::Target target) { return std::string(target_name(target)); });
  command
      ->add_option("--to", arguments->to,
                   "mxfp4, nvfp4, int4 or fp8: of the routed experts; bf16: of every matrix")
      ->required()
      ->check(CLI::IsMember(names));
  command->add_option("--threads", arguments->threads, "CPU threads (default: one a core)")
      ->check(CLI::Range(1, 1024));
  command->add_flag("--json", arguments->json, "One JSON object, with a report for each matrix");
  command->add_flag("--tensors", arguments->tensors, "A line for each converted matrix");
  return {command, [arguments] { return run_convert(*arguments); }};
}

}  // namespace nibble::cli
