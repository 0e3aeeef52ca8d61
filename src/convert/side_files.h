// The files of a checkpoint that are neither tensors nor about their format.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/folder.h"

namespace nibble::convert {

struct SideFiles {
  std::vector<std::string> copied;    // relative paths, sorted: "tokenizer.json", "encoding/x.py"
  std::vector<std::string> left_out;  // the same, and why in brackets
  std::int64_t bytes = 0;             // of those copied
};

// Copied: *.json, *.jsonl, *.txt, *.md, *.jinja, *.model, LICENSE*, NOTICE* and README* of the folder
// (without config.json, hf_quant_config.json and the index, which are written anew), and of its
// folder `encoding` *.py and the same endings. Weights in other forms, code, and folders of other
// names are left out. `folder` is on this machine.
SideFiles find_side_files(const checkpoint::Folder& folder);

// Copies one of `copied` below `destination`, whose folder exists. Links are followed as
// checkpoint::Folder does, in encoding/ also within a hub cache's blobs.
void copy_side_file(const checkpoint::Folder& folder, const std::string& name,
                    const std::string& destination, bool durable);

}  // namespace nibble::convert
