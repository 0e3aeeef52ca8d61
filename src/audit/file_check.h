// One file's content: what it is, whatever it is called, and whether what nibble would read of it is whole.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "audit/report.h"
#include "audit/weights.h"
#include "checkpoint/folder.h"

namespace nibble::audit {

// What the other files' checks need to know.
struct FileFacts {
  std::optional<ShardTensors> tensors;          // of a *.safetensors that could be read
  std::optional<checkpoint::ShardIndex> index;  // of the index, likewise
  std::vector<std::string> modules;             // see JsonFacts
};

// `name` is relative to the model's folder. Reads at most the first and last 64 KiB of large files, all of JSON and templates, and
// the headers of weights. Throws CheckpointError when the file cannot be read.
FileFacts check_file(const std::string& name, const checkpoint::File& file,
                     std::vector<Finding>& findings);

}  // namespace nibble::audit
