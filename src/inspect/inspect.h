// What is in a checkpoint and what is wrong with it, all of it at once, from config.json and the
// shards' headers. With `scan` the scales are read too (a few per cent of the bytes).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/folder.h"
#include "checkpoint/known_layouts.h"
#include "ops/backend.h"
#include "quant/scale_stats.h"

namespace nibble::inspect {

// The matrices of one layer kind in one format.
struct FormatRow {
  std::string layer_kind;  // "routed experts", "MTP attention projections", ...
  std::string format;      // "MXFP4", "FP8 128x128 (F32)", ...
  std::int64_t count = 0;
  std::int64_t bytes = 0;  // of codes, scales and global scales, as stored
  std::string kernel;      // that will serve them; "" when nothing can be served
  std::string unit;
  std::optional<quant::ScaleStats> scales;  // set by a scan, for formats that have scales
  int widest_span = 0;                      // of exponents in one matrix; with `scales`
};

struct Report {
  std::string path;
  std::int64_t shards = 0;
  std::int64_t tensors = 0;  // in the files
  std::int64_t tensor_bytes = 0;
  std::int64_t other_tensors = 0;  // that are no part of a matrix: norms, biases, tables
  std::int64_t other_bytes = 0;
  std::vector<FormatRow> rows;  // the largest first
  bool scanned = false;
  std::vector<std::string> notes;           // odd but harmless
  std::vector<std::string> contradictions;  // metadata against tensors; the tensors won
  std::vector<std::string> problems;        // each is a reason to refuse
  checkpoint::Verdict verdict = checkpoint::Verdict::kRefuse;
  std::string reason;  // of kInspectOnly
};

struct Options {
  bool scan = false;
  // Which kernel serves an op on a format; the answer may be empty.
  std::function<ops::KernelInfo(ops::OpKind, quant::Format)> kernel;
  int scan_threads = 16;  // that read scales, >= 1
  std::function<void(double)>
      progress;  // of a scan, in [0, 1], from the calling thread; may be null
};

// Never throws CheckpointError: whatever is wrong is in `problems`.
Report inspect(const checkpoint::Folder& folder, const Options& options);

}  // namespace nibble::inspect
