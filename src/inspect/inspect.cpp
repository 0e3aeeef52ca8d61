#include "inspect/inspect.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <map>
#include <thread>
#include <utility>

#include "checkpoint/checkpoint.h"
#include "checkpoint/matrix_reader.h"
#include "checkpoint/quant_claims.h"
#include "checkpoint/quote.h"
#include "inspect/other_model.h"
#include "model/config.h"
#include "model/deepseek_v4/weight_walk.h"
#include "nibble/status.h"

namespace nibble::inspect {
namespace {

using checkpoint::Checkpoint;
using checkpoint::Verdict;
using model::MatrixUse;

constexpr std::int64_t kScanProblems =
    100;  // said one by one; a file that is all NaN has thousands

void append(std::vector<std::string>& to, const std::vector<std::string>& lines) {
  to.insert(to.end(), lines.begin(), lines.end());
}

// The network behind the matrices.
struct Network {
  std::vector<MatrixUse> matrices;
  bool known = false;  // a DeepSeek-V4 that ModelConfig accepts
  std::string reason;  // why it is for inspection only
};

// Matrices of a DeepSeek-V4 model, or what names and shapes tell of another one.
Network find_matrices(const Checkpoint& files, Report& report) {
  Network network;
  const checkpoint::Folder& folder = files.folder();
  try {
    const model::ModelConfig config = model::ModelConfig::load(folder);
    checkpoint::WeightBinder binder(files, checkpoint::OnProblem::kCollect);
    network.matrices = model::list_matrices(binder, config, report.notes);
    network.known = true;
    append(report.notes, binder.notes());
    append(report.problems, binder.problems());
    return network;
  } catch (const CheckpointError& error) {
    OtherConfig other;
    try {
      other = read_other_config(folder);
    } catch (const CheckpointError&) {
      // config.json cannot be read; `error` has said so
    }
    if (other.model_type.empty() || other.model_type == "deepseek_v4") {
      report.problems.emplace_back(error.what());
      if (auto refused = checkpoint::refused_by_name(files))
        report.problems.push_back(std::move(*refused));
    } else {
      network.reason = error.what();
      if (auto refused = checkpoint::refused_by_name(files)) {
        report.problems.push_back(std::move(*refused));
        return network;
      }
    }
    network.matrices = other_matrices(files, other, report.notes, report.problems);
  }
  return network;
}

using Key = std::pair<std::string, std::string>;  // kind, format

bool has_scales(const MatrixUse& use) {
  return use.source.found() && use.source.parts.scale.stored != nullptr;
}

// The scales of every matrix that has some, in the matrices' order. Several threads: over HTTP a matrix is a request or two, and
// waiting is all it costs. Throws the first matrix's error.
std::vector<checkpoint::ScaleScan> scan_all(const Checkpoint& files,
                                            const std::vector<MatrixUse>& matrices,
                                            const Options& options) {
  std::vector<checkpoint::ScaleScan> scans(matrices.size());
  std::vector<std::exception_ptr> errors(matrices.size());
  std::atomic<std::size_t> next{0};
  std::atomic<bool> failed{false};
  const auto work = [&](bool reports) {
    for (std::size_t i = next++; i < matrices.size() && !failed; i = next++) {
      if (reports && options.progress)
        options.progress(static_cast<double>(i) / static_cast<double>(matrices.size()));
      if (!has_scales(matrices[i])) continue;
      const checkpoint::MatrixSource& m = matrices[i].source;
      try {
        scans[i] = checkpoint::scan_scales(files, m.parts, m.format, m.rows, m.cols);
      } catch (...) {
        errors[i] = std::current_exception();
        failed = true;
      }
    }
  };
  {
    std::vector<std::jthread> threads;
    for (int i = 1; i < options.scan_threads; ++i) threads.emplace_back(work, false);
    work(true);
  }
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
  return scans;
}

// Adds up scans, matrix by matrix in the order of the walk: an expert's gate comes before its up.
class ScaleSummary {
 public:
  ScaleSummary(const Checkpoint& files, Report& report) : files_(files), report_(report) {}

  void add(const checkpoint::MatrixSource& m, const checkpoint::ScaleScan& scan, FormatRow& row) {
    if (!row.scales) row.scales.emplace();
    row.scales->add(scan.stats);
    row.widest_span = std::max(row.widest_span, scan.stats.span());
    for (const std::string& text : scan.problems) say(text);
    if (m.format.format == quant::Format::kNvfp4) compare_pair(m, scan.global_scale);
  }

  void finish() {
    if (problems_ > kScanProblems)
      report_.problems.push_back(
          fmt::format("{} more problems of this kind", problems_ - kScanProblems));
    if (unequal_pairs_ > 0)
      report_.notes.push_back(fmt::format(
          "{} pairs of gate and up projections have different global scales; each keeps its own",
          unequal_pairs_));
  }

 private:
  void say(const std::string& text) {
    if (problems_++ < kScanProblems) report_.problems.push_back(text);
  }

  // What WeightBinder::gate_and_up() would say.
  void compare_pair(const checkpoint::MatrixSource& m, float global) {
    if (m.name.ends_with(".w1")) {
      gate_ = m.name;
      gate_global_ = global;
      return;
    }
    const std::string stem = m.name.substr(0, m.name.size() - 2);
    if (!m.name.ends_with(".w3") || gate_ != stem + "w1" || gate_global_ == global) return;
    if (m.format.reciprocal_global) {
      ++unequal_pairs_;
      return;
    }
    say(
        fmt::format("{}: expected the global scale of {}, {}, which the two projections share, "
                    "found {}",
                    checkpoint::where(files_, m.parts.global_scale), checkpoint::quote(gate_),
                    gate_global_, global));
  }

  const Checkpoint& files_;
  Report& report_;
  std::int64_t problems_ = 0, unequal_pairs_ = 0;
  std::string gate_;
  float gate_global_ = 0.0f;
};

void fill_rows(const Checkpoint& files, const Network& network, const Options& options,
               Report& report) {
  std::map<Key, FormatRow> rows;
  ScaleSummary scales(files, report);
  std::vector<checkpoint::ScaleScan> scans;
  if (options.scan) scans = scan_all(files, network.matrices, options);
  std::int64_t matrix_tensors = 0, matrix_bytes = 0;
  for (std::size_t i = 0; i < network.matrices.size(); ++i) {
    const MatrixUse& use = network.matrices[i];
    const checkpoint::MatrixSource& m = use.source;
    for (const auto* part :
         {&m.parts.weight, &m.parts.scale, &m.parts.global_scale, &m.parts.input_scale,
          &m.parts.shape, &m.parts.zero_point, &m.parts.group_index}) {
      if (part->stored == nullptr) continue;
      ++matrix_tensors;
      matrix_bytes += part->bytes;
    }
    if (!m.found()) continue;
    const std::string format = quant::format_name(m.format.format, m.format.scale_dtype);
    FormatRow& row = rows[{use.kind, format}];
    if (row.count == 0) {
      row.layer_kind = use.kind;
      row.format = format;
      if (network.known && options.kernel) {
        const ops::KernelInfo kernel = options.kernel(use.op, m.format.format);
        row.kernel = kernel.name;
        row.unit = kernel.unit;
      }
    }
    ++row.count;
    row.bytes += m.bytes();
    if (options.scan && has_scales(use)) scales.add(m, scans[i], row);
  }
  scales.finish();
  for (auto& [key, row] : rows) report.rows.push_back(std::move(row));
  std::ranges::stable_sort(report.rows, std::greater<>(), &FormatRow::bytes);
  report.other_tensors = report.tensors - matrix_tensors;
  report.other_bytes = report.tensor_bytes - matrix_bytes;
}

}  // namespace

Report inspect(const checkpoint::Folder& folder, const Options& options) {
  Report report;
  report.path = folder.path();
  report.scanned = options.scan;
  try {
    const Checkpoint files = Checkpoint::open(folder, &report.problems);
    report.shards = static_cast<std::int64_t>(files.shards().size());
    report.tensors = static_cast<std::int64_t>(files.tensors().size());
    report.tensor_bytes = files.tensor_bytes();
    append(report.notes, files.notes());
    const checkpoint::QuantClaims claims = checkpoint::read_quant_claims(folder);
    const Network network = find_matrices(files, report);
    report.contradictions =
        checkpoint::contradictions(claims, model::found_formats(network.matrices));
    fill_rows(files, network, options, report);
    report.reason = network.reason;
    if (report.reason.empty())
      report.reason = checkpoint::inspect_only_reason(claims.quant_method).value_or("");
  } catch (const CheckpointError& error) {
    report.problems.emplace_back(error.what());
  }
  report.verdict = !report.problems.empty() ? Verdict::kRefuse
                   : !report.reason.empty() ? Verdict::kInspectOnly
                                            : Verdict::kServe;
  return report;
}

}  // namespace nibble::inspect
