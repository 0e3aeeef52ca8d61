// The plan as aligned tables.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <iterator>

#include "plan/plan.h"

namespace nibble::plan {
namespace {

using Row = std::vector<std::string>;

// Cells padded to their column's width; the columns whose heading begins with '>' are right-aligned.
std::string table(Row heading, const std::vector<Row>& rows) {
  std::vector<bool> right(heading.size());
  std::vector<std::size_t> width(heading.size());
  for (std::size_t i = 0; i < heading.size(); ++i) {
    right[i] = heading[i].starts_with('>');
    if (right[i]) heading[i].erase(0, 1);
    width[i] = heading[i].size();
    for (const Row& row : rows) width[i] = std::max(width[i], row[i].size());
  }
  std::string out;
  const auto print = [&](const Row& row) {
    std::string line = "  ";
    for (std::size_t i = 0; i < row.size(); ++i)
      line += right[i] ? fmt::format("{:>{}}  ", row[i], width[i])
                       : fmt::format("{:<{}}  ", row[i], width[i]);
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  };
  print(heading);
  for (const Row& row : rows) print(row);
  return out;
}

std::string size(std::int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (bytes >= 999'950'000) return fmt::format("{:.2f} GB", value / 1e9);
  if (bytes >= 999'950) return fmt::format("{:.1f} MB", value / 1e6);
  return bytes >= 1000 ? fmt::format("{:.1f} kB", value / 1e3) : fmt::format("{}", bytes);
}

std::string machine(const PlanOptions& options) {
  return fmt::format("{} x {}", options.gpu.count, options.gpu.machine.kind);
}

std::string verdict(const Plan& plan) {
  const std::int64_t left = plan.memory.capacity - plan.memory.total();
  const char* each = plan.options.gpu.count > 1 ? " on each" : "";
  return plan.memory.fits() ? fmt::format("fits, {} to spare{}", size(left), each)
                            : fmt::format("does not fit: {} missing{}", size(-left), each);
}

std::string download(const Plan& plan) {
  if (plan.here)
    return fmt::format("{} of tensors, already on this machine", size(plan.download_bytes));
  const std::int64_t missing = plan.download_bytes - plan.disk_free_bytes;
  return fmt::format("{} of tensors, {} free: {}", size(plan.download_bytes),
                     size(plan.disk_free_bytes),
                     missing > 0 ? fmt::format("{} missing", size(missing)) : "enough");
}

std::string memory_table(const Plan& plan) {
  const MemoryPlan& m = plan.memory;
  const char* of = is_host(plan.options.gpu.machine.arch) ? "memory" : "memory of each GPU";
  const std::pair<const char*, std::int64_t> parts[] = {
      {"weights", m.weights},  {"replicated", m.replicated}, {"kv", m.kv},
      {"state", m.state},      {"snapshots", m.snapshots},   {"workspace", m.workspace},
      {"graphs", m.graphs},    {"draft", m.draft},           {"total", m.total()},
      {"capacity", m.capacity}};
  std::vector<Row> rows;
  rows.reserve(std::size(parts));
  for (const auto& [name, bytes] : parts)
    rows.push_back({name, size(bytes), fmt::format("{}", bytes)});
  return table({of, ">size", ">bytes"}, rows);
}

std::string layer_table(const std::vector<LayerRow>& layers) {
  std::vector<Row> rows;
  rows.reserve(layers.size());
  for (const LayerRow& row : layers)
    rows.push_back({row.kind, row.format, fmt::format("{}", row.count),
                    row.bytes > 0 ? size(row.bytes) : "-", row.kernel, row.unit});
  return table({"layer kind", "format", ">count", ">size", "kernel", "unit"}, rows);
}

std::string decode_table(const Plan& plan) {
  std::vector<Row> rows;
  rows.reserve(plan.speed.decode.size());
  for (const DecodeEstimate& e : plan.speed.decode)
    rows.push_back({fmt::format("{}", e.batch), fmt::format("{:.2f}", e.ms),
                    fmt::format("{:.0f}", e.tokens_per_s), fmt::format("{:.2f}", e.floor_ms),
                    size(e.bytes), e.batch <= plan.sequences_that_fit ? "yes" : "no"});
  return table({">batch", ">ms a step", ">tokens/s", ">floor ms", ">read", "cache fits"}, rows);
}

std::string explain_lines(const char* title, const std::vector<ExplainLine>& lines) {
  std::vector<Row> rows;
  rows.reserve(lines.size());
  for (const ExplainLine& line : lines) rows.push_back({line.what, line.value, line.how});
  return fmt::format("\n{}\n", title) + table({"what", ">value", "from"}, rows);
}

std::string section(const char* title, const std::vector<std::string>& lines) {
  if (lines.empty()) return "";
  std::string out = fmt::format("\n{}\n", title);
  for (const std::string& line : lines) out += "  " + line + "\n";
  return out;
}

}  // namespace

std::string plan_text(const Plan& plan, bool explain) {
  std::string out = fmt::format("{} on {} ({}): {}\n", plan.model, machine(plan.options),
                                ops::arch_name(plan.options.gpu.machine.arch), verdict(plan));
  out += fmt::format("  context {}, concurrency {}, {} cache rows; up to {} sequences fit\n",
                     plan.options.context, plan.options.concurrency, plan.kv_dtype,
                     plan.sequences_that_fit);
  out += fmt::format("  {} tensors, from {}\n", plan.tensors, plan.source);
  out += fmt::format("  download: {}\n\n", download(plan));
  out += memory_table(plan);
  if (plan.memory.host_snapshots > 0)
    out += fmt::format("  and {} of the host's memory for snapshots of prefixes\n",
                       size(plan.memory.host_snapshots));
  out += "\n" + layer_table(plan.layers) + "\n" + decode_table(plan);
  out += fmt::format("\n  prefill {:.0f} tokens/s; no drafting counted; basis: {}\n",
                     plan.speed.prefill_tokens_per_s,
                     plan.speed.measured ? "kernel"
                                         : "roofline (memory, arithmetic, launches and "
                                           "links of the machine; no kernel measured)");
  out += section("what would help", plan.remedies);
  out += section("notes", plan.notes);
  if (explain) {
    out += explain_lines("memory, line by line (docs/plan.md, \"What each GPU holds\")",
                         plan.memory.lines);
    out += explain_lines("speed, line by line (docs/plan.md, \"Speed\")", plan.speed.lines);
  }
  return out;
}

}  // namespace nibble::plan
