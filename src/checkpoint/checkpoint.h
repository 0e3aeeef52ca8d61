// An opened checkpoint: the tensors of all its shards under the names they have in the files. Only
// headers have been read.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/folder.h"
#include "checkpoint/safetensors.h"

namespace nibble::checkpoint {

struct CheckpointTensor : StoredTensor {
  int shard = 0;  // place in Checkpoint::shards()
};

// Immutable after open(); every method may be called from several threads at once.
class Checkpoint {
 public:
  // The shards are, in this order of preference: those of model.safetensors.index.json;
  // model.safetensors; every *.safetensors file. With an index, what it says about each tensor must
  // be what the shards hold. Throws CheckpointError naming file, tensor, what was expected and what
  // was found.
  //
  // With `problems`, what can be said beside other problems is appended there instead (a line each),
  // and what is left of the checkpoint is returned: unreadable shards are left out, a tensor in two
  // shards counts once. It still throws when there is nothing to look at.
  static Checkpoint open(const std::string& path) { return open(Folder(path)); }
  static Checkpoint open(Folder folder, std::vector<std::string>* problems = nullptr);

  const Folder& folder() const { return folder_; }
  std::string config_path() const { return folder_.path_of("config.json"); }
  const std::vector<File>& shards() const { return shards_; }
  const std::vector<CheckpointTensor>& tensors() const { return tensors_; }  // sorted by name
  const CheckpointTensor* find(std::string_view name) const;                 // null when absent
  std::int64_t tensor_bytes() const { return tensor_bytes_; }
  const std::vector<std::string>& notes() const { return notes_; }  // odd but harmless, a line each

  // "FOLDER/SHARD: tensor 'NAME'", how every message about a tensor begins.
  std::string where(const CheckpointTensor& tensor) const;

  // Fills `out` from the tensor's byte `offset`; the range lies inside the tensor (checked
  // invariant). Throws CheckpointError when the file cannot be read.
  void read(const CheckpointTensor& tensor, std::int64_t offset, std::span<std::byte> out) const;

 private:
  explicit Checkpoint(Folder folder) : folder_(std::move(folder)) {}
  void problem(std::string text) const;  // throws, or gathers
  void open_indexed();
  void open_unindexed();
  void add_shard(const std::string& name);
  void sort_tensors();

  Folder folder_;
  std::vector<File> shards_;
  std::vector<CheckpointTensor> tensors_;
  std::vector<std::string> notes_;
  std::int64_t tensor_bytes_ = 0;
  std::vector<std::string>* problems_ = nullptr;  // while opening
};

}  // namespace nibble::checkpoint
