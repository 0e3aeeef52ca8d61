// Whether the weights are whole: each *.safetensors on its own, then all of them against the index.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "audit/report.h"
#include "checkpoint/folder.h"
#include "checkpoint/shard_index.h"

namespace nibble::audit {

// The tensors of one file.
struct ShardTensors {
  std::vector<std::string> names;
  std::int64_t bytes = 0;
};

// Reads the header. Nothing: it is damaged, and `findings` says how.
std::optional<ShardTensors> check_safetensors(const checkpoint::File& file,
                                              std::vector<Finding>& findings);

// The index. Nothing: it is damaged, and `findings` says how.
std::optional<checkpoint::ShardIndex> check_index(const std::string& path, std::string_view text,
                                                  std::vector<Finding>& findings);

// Compares what was read. Damaged shards are left out: their own findings say enough.
class WeightsCheck {
 public:
  // A *.safetensors file directly in the folder; nothing: it is there and could not be read.
  void add_shard(FileReport& report, std::optional<ShardTensors> tensors);
  // At most one; nothing: it is there and damaged.
  void set_index(FileReport& report, std::optional<checkpoint::ShardIndex> index);

  // Adds findings to the reports given before, and to `whole`.
  void finish(std::vector<Finding>& whole);

 private:
  struct Shard {
    FileReport* report;
    std::optional<ShardTensors> tensors;
  };
  void check_against_index();
  void check_without_index(std::vector<Finding>& whole);
  void find_duplicates();

  std::map<std::string, Shard> shards_;
  FileReport* index_report_ = nullptr;
  std::optional<checkpoint::ShardIndex> index_;
};

}  // namespace nibble::audit
