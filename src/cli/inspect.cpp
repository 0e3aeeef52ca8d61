// `nibble inspect`: what is in a checkpoint, and what is wrong with it. Exit 3 when it is refused.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "api/json_writer.h"
#include "base/thread_pool.h"
#include "cli/commands.h"
#include "cli/model_path.h"
#include "cli/progress.h"
#include "inspect/inspect.h"
#include "nibble/status.h"
#include "ops/cpu/cpu_backend.h"

namespace nibble::cli {
namespace {

using inspect::FormatRow;
using inspect::Report;

struct InspectOptions {
  std::string model = "tiny";
  bool json = false;
  bool scan = false;
};

std::string exponents(const FormatRow& row) {
  if (!row.scales || !row.scales->max_exponent) return "-";
  return fmt::format("2^{}..2^{}, span {}", *row.scales->min_exponent, *row.scales->max_exponent,
                     row.widest_span);
}

void print_table(const Report& report) {
  std::size_t kind = 10, format = 6, kernel = 6, unit = 4;
  for (const FormatRow& row : report.rows) {
    kind = std::max(kind, row.layer_kind.size());
    format = std::max(format, row.format.size());
    kernel = std::max(kernel, row.kernel.size());
    unit = std::max(unit, row.unit.size());
  }
  const auto line = [&](const auto&... cells) {
    std::string text = fmt::format("{:<{}}  {:<{}}  {:>6}  {:>10}  {:<{}}  {:<{}}  {}", cells...);
    text.erase(text.find_last_not_of(' ') + 1);
    fmt::print("{}\n", text);
  };
  line("layer kind", kind, "format", format, "count", "MB", "kernel", kernel, "unit", unit,
       report.scanned ? "scales" : "");
  for (const FormatRow& row : report.rows)
    line(row.layer_kind, kind, row.format, format, row.count,
         fmt::format("{:.2f}", static_cast<double>(row.bytes) / 1e6),
         row.kernel.empty() ? "-" : row.kernel, kernel, row.unit.empty() ? "-" : row.unit, unit,
         report.scanned ? exponents(row) : "");
  line("other tensors", kind, "-", format, report.other_tensors,
       fmt::format("{:.2f}", static_cast<double>(report.other_bytes) / 1e6), "-", kernel, "-", unit,
       "");
}

void print_text(const Report& report) {
  fmt::print("{}: {} tensors in {} shard{}, {} bytes\n", report.path, report.tensors, report.shards,
             report.shards == 1 ? "" : "s", report.tensor_bytes);
  if (!report.rows.empty()) print_table(report);
  for (const std::string& line : report.notes) fmt::print("note: {}\n", line);
  for (const std::string& line : report.contradictions) fmt::print("contradiction: {}\n", line);
  for (const std::string& line : report.problems) fmt::print("problem: {}\n", line);
  fmt::print("verdict: {}{}\n", checkpoint::verdict_name(report.verdict),
             report.reason.empty() ? "" : ": " + report.reason);
}

void write_row(api::JsonWriter& json, const FormatRow& row) {
  json.begin_object()
      .member("kind", row.layer_kind)
      .member("format", row.format)
      .member("count", row.count)
      .member("bytes", row.bytes);
  for (const auto& [key, text] :
       {std::pair<const char*, const std::string*>{"kernel", &row.kernel}, {"unit", &row.unit}}) {
    json.key(key);
    if (text->empty())
      json.null();
    else
      json.string(*text);
  }
  json.key("scales");
  if (!row.scales) {
    json.null().end_object();
    return;
  }
  json.begin_object()
      .member("count", row.scales->count)
      .member("nan", row.scales->nan)
      .member("negative", row.scales->negative);
  json.member("powers_of_two", row.scales->powers_of_two);
  const auto exponent = [&](const char* key, const std::optional<int>& value) {
    json.key(key);
    if (value)
      json.number(*value);
    else
      json.null();
  };
  exponent("min_exponent", row.scales->min_exponent);
  exponent("max_exponent", row.scales->max_exponent);
  json.member("widest_span", row.widest_span).end_object().end_object();
}

void print_json(const Report& report) {
  std::string text;
  api::JsonWriter json(text);
  json.begin_object()
      .member("model", report.path)
      .member("verdict", std::string(checkpoint::verdict_name(report.verdict)))
      .member("reason", report.reason)
      .member("shards", report.shards)
      .member("tensors", report.tensors)
      .member("bytes", report.tensor_bytes)
      .member("scanned", report.scanned);
  json.key("layers").begin_array();
  for (const FormatRow& row : report.rows) write_row(json, row);
  json.end_array();
  json.key("other")
      .begin_object()
      .member("count", report.other_tensors)
      .member("bytes", report.other_bytes)
      .end_object();
  for (const auto& [key, lines] :
       {std::pair<const char*, const std::vector<std::string>*>{"notes", &report.notes},
        {"contradictions", &report.contradictions},
        {"problems", &report.problems}}) {
    json.key(key).begin_array();
    for (const std::string& line : *lines) json.string(line);
    json.end_array();
  }
  json.end_object();
  fmt::print("{}\n", text);
}

int run_inspect(const InspectOptions& options) {
  const checkpoint::Folder folder = open_model_files(options.model).folder;
  ThreadPool pool(1);
  const ops::cpu::CpuBackend backend(ops::Numerics{}, pool);
  inspect::Options how;
  how.scan = options.scan;
  how.kernel = [&](ops::OpKind op, quant::Format format) { return backend.kernel(op, format); };
  Progress progress("reading scales");
  if (options.scan) how.progress = [&](double fraction) { progress.show(fraction); };
  const Report report = inspect::inspect(folder, how);
  if (options.json)
    print_json(report);
  else
    print_text(report);
  return static_cast<int>(report.verdict == checkpoint::Verdict::kRefuse
                              ? ExitCode::kRefusedCheckpoint
                              : ExitCode::kOk);
}

}  // namespace

Command add_inspect(CLI::App& app) {
  auto options = std::make_shared<InspectOptions>();
  CLI::App* command = app.add_subcommand(
      "inspect", "what is in a checkpoint, and what is wrong with it; exit 3 when it is refused");
  command->add_option("MODEL", options->model,
                      "a folder, OWNER/NAME[@REVISION] in the hub cache or, by its headers alone, "
                      "on the hub, or tiny (the default)");
  command->add_flag("--json", options->json, "one JSON object");
  command->add_flag("--scan", options->scan,
                    "read the scales too: exponents, NaN codes (without it, headers only)");
  return {command, [options] { return run_inspect(*options); }};
}

}  // namespace nibble::cli
