// `nibble convert`: a checkpoint in another format, in the layout that the format's publishers use.
//
// Shard by shard: each new shard is written by all threads while its source is read, every tensor
// straight into its place. Memory: a job holds one matrix (NVFP4: the gate and up projection of one
// expert) in its old and its new form and 128 rows of it in fp32, or a 4 MiB piece of a tensor that is
// copied; each thread has one job. Beside that only headers and the report. The result appears under
// its name when it is whole and on the disk, never before.
#pragma once

#include <functional>
#include <string>

#include "convert/report.h"
#include "convert/target.h"

namespace nibble::convert {

struct ConvertOptions {
  std::string source;       // a folder on this machine
  std::string destination;  // absent or an empty folder, apart from the source
  Target target = Target::kNvfp4;
  int threads = 1;
  bool durable = true;                   // wait for the disk before the result gets its name
  std::function<void(double)> progress;  // may be empty; 0..1
  std::function<bool()> cancelled;       // may be empty; asked about twenty times a second
};

// Throws CheckpointError for a source that the loader would refuse, Error(kUsage) for a destination
// that cannot be, Error(kFailed) when the disk is too small, writing fails, or it was cancelled. After
// any of them there is no destination (nor its temporary folder).
ConvertReport convert(const ConvertOptions& options);

}  // namespace nibble::convert
