#include "checkpoint/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "base/check.h"
#include "checkpoint/quote.h"
#include "checkpoint/shard_index.h"
#include "nibble/status.h"

namespace nibble::checkpoint {
namespace {

constexpr std::size_t kNamesInAMessage = 8;

std::vector<std::string> safetensors_files(const Folder& folder) {
  std::vector<std::string> names;
  for (std::string& name : folder.list()) {
    if (name.ends_with(".safetensors")) names.push_back(std::move(name));
  }
  return names;
}

// Weights in a format that runs code when it is loaded.
std::string pickle_file(const Folder& folder) {
  constexpr std::array<std::string_view, 5> kEndings = {".bin", ".pt", ".pth", ".pkl", ".ckpt"};
  for (std::string& name : folder.list()) {
    for (const std::string_view ending : kEndings) {
      if (name.ends_with(ending)) return std::move(name);
    }
  }
  return {};
}

std::string gguf_file(const Folder& folder) {
  for (std::string& name : folder.list())
    if (name.ends_with(".gguf")) return std::move(name);
  return {};
}

// "model-rank-3-part-0.safetensors", "tp_rank_02.safetensors": a file of one rank.
bool names_a_rank(std::string_view path) {
  const std::string_view name = path.substr(path.find_last_of('/') + 1);
  for (const std::string_view word : {"rank", "tp"}) {
    for (std::size_t at = name.find(word); at != std::string_view::npos;
         at = name.find(word, at + 1)) {
      if (at > 0 && std::isalnum(static_cast<unsigned char>(name[at - 1])) != 0) continue;
      std::size_t digit = at + word.size();
      if (digit < name.size() && (name[digit] == '-' || name[digit] == '_')) ++digit;
      if (digit < name.size() && std::isdigit(static_cast<unsigned char>(name[digit])) != 0)
        return true;
    }
  }
  return false;
}

}  // namespace

Checkpoint Checkpoint::open(Folder folder, std::vector<std::string>* problems) {
  Checkpoint checkpoint(std::move(folder));
  checkpoint.problems_ = problems;
  if (checkpoint.folder_.has(kShardIndexName)) {
    checkpoint.open_indexed();
  } else {
    checkpoint.open_unindexed();
  }
  checkpoint.problems_ = nullptr;
  return checkpoint;
}

void Checkpoint::problem(std::string text) const {
  if (problems_ == nullptr) throw CheckpointError(text);
  problems_->push_back(std::move(text));
}

void Checkpoint::open_indexed() {
  const std::string index_path = folder_.path_of(kShardIndexName);
  const ShardIndex index =
      parse_shard_index(index_path, folder_.read_text(kShardIndexName, kMaxShardIndexBytes));

  std::string missing;
  std::size_t missing_count = 0;
  for (const std::string& shard : index.shards) {
    if (folder_.has(shard)) continue;
    if (missing_count++ < kNamesInAMessage) missing += (missing.empty() ? "" : ", ") + quote(shard);
  }
  if (missing_count > 0) {
    problem(fmt::format("{}: expected {} shards, {} missing from the folder: {}", index_path,
                        index.shards.size(), missing_count, missing));
  }
  for (const std::string& shard : index.shards)
    if (missing_count == 0 || folder_.has(shard)) add_shard(shard);
  sort_tensors();

  for (const CheckpointTensor& tensor : tensors_) {
    const auto listed = index.shard_of.find(tensor.name);
    if (listed == index.shard_of.end()) {
      problem(fmt::format("{}: not listed in {}", where(tensor), kShardIndexName));
      continue;
    }
    const std::string& shard = index.shards[static_cast<std::size_t>(listed->second)];
    if (shards_[static_cast<std::size_t>(tensor.shard)].path() != folder_.path_of(shard)) {
      problem(fmt::format("{}: {} places it in {}", where(tensor), kShardIndexName, quote(shard)));
    }
  }
  if (shards_.size() == index.shards.size() && tensors_.size() < index.shard_of.size()) {
    // Name the first in the alphabet, so that the message does not depend on the hash map's order.
    const std::pair<const std::string, int>* first = nullptr;
    for (const auto& listed : index.shard_of) {
      if (find(listed.first) == nullptr && (first == nullptr || listed.first < first->first)) {
        first = &listed;
      }
    }
    if (first != nullptr)
      problem(fmt::format(
          "{}: tensor {} is not in its shard {} ({} of {} listed tensors are missing)", index_path,
          quote(first->first), quote(index.shards[static_cast<std::size_t>(first->second)]),
          index.shard_of.size() - tensors_.size(), index.shard_of.size()));
  }
  if (index.total_size && *index.total_size != static_cast<std::uint64_t>(tensor_bytes_)) {
    notes_.push_back(fmt::format("{}: total_size says {} bytes, the shards hold {}; the shards win",
                                 index_path, *index.total_size, tensor_bytes_));
  }
  for (const std::string& name : safetensors_files(folder_)) {
    if (!std::binary_search(index.shards.begin(), index.shards.end(), name)) {
      notes_.push_back(fmt::format("{}: not in the index, ignored", folder_.path_of(name)));
    }
  }
}

void Checkpoint::open_unindexed() {
  const std::vector<std::string> files = safetensors_files(folder_);
  if (files.empty()) {
    if (const std::string gguf = gguf_file(folder_); !gguf.empty()) {
      throw CheckpointError(fmt::format(
          "{}: expected *.safetensors files, found {}: GGUF is not supported; the same model in "
          "safetensors is",
          folder_.path(), quote(gguf)));
    }
    const std::string pickle = pickle_file(folder_);
    if (pickle.empty()) {
      throw CheckpointError(
          fmt::format("{}: expected *.safetensors files, found none", folder_.path()));
    }
    throw CheckpointError(
        fmt::format("{}: expected *.safetensors files, found only {}, a pickle: loading it would "
                    "run code from the "
                    "checkpoint. Convert it to safetensors first",
                    folder_.path(), quote(pickle)));
  }
  constexpr const char* kSingle = "model.safetensors";
  if (std::binary_search(files.begin(), files.end(), kSingle)) {
    add_shard(kSingle);
    for (const std::string& name : files) {
      if (name == kSingle) continue;
      notes_.push_back(fmt::format("{}: ignored beside {}", folder_.path_of(name), kSingle));
    }
  } else {
    if (files.size() > kMaxShards) {
      throw CheckpointError(fmt::format("{}: {} *.safetensors files, expected at most {}",
                                        folder_.path(), files.size(), kMaxShards));
    }
    for (const std::string& name : files) add_shard(name);
  }
  sort_tensors();
  if (tensors_.empty()) {
    throw CheckpointError(
        fmt::format("{}: the *.safetensors files hold no tensors", folder_.path()));
  }
}

void Checkpoint::add_shard(const std::string& name) {
  SafetensorsHeader header;
  try {
    File file = folder_.open(name);
    header = read_safetensors_header(file);
    shards_.push_back(std::move(file));
  } catch (const CheckpointError& error) {
    return problem(error.what());
  }
  const int shard = static_cast<int>(shards_.size()) - 1;
  for (StoredTensor& tensor : header.tensors) {
    tensor_bytes_ += tensor.bytes;
    tensors_.push_back({std::move(tensor), shard});
  }
  notes_.insert(notes_.end(), header.notes.begin(), header.notes.end());
}

void Checkpoint::sort_tensors() {
  std::sort(tensors_.begin(), tensors_.end(),
            [](const CheckpointTensor& a, const CheckpointTensor& b) {
              return std::pair<std::string_view, int>(a.name, a.shard) <
                     std::pair<std::string_view, int>(b.name, b.shard);
            });
  std::int64_t doubles = 0;
  for (std::size_t i = 1; i < tensors_.size(); ++i) {
    const CheckpointTensor &a = tensors_[i - 1], &b = tensors_[i];
    if (a.name != b.name) continue;
    const std::string& other = shards_[static_cast<std::size_t>(a.shard)].path();
    if (doubles++ < static_cast<std::int64_t>(kNamesInAMessage))
      problem(fmt::format("{}: also in {}; expected in one shard only{}", where(b), other,
                          names_a_rank(other)
                              ? " (files already split for tensor parallelism are not supported)"
                              : ""));
  }
  if (doubles == 0) return;
  if (doubles > static_cast<std::int64_t>(kNamesInAMessage))
    problem(fmt::format("{}: {} tensors are in two shards", folder_.path(), doubles));
  tensors_.erase(std::unique(tensors_.begin(), tensors_.end(),
                             [](const auto& a, const auto& b) { return a.name == b.name; }),
                 tensors_.end());
}

const CheckpointTensor* Checkpoint::find(std::string_view name) const {
  const auto found =
      std::lower_bound(tensors_.begin(), tensors_.end(), name,
                       [](const CheckpointTensor& a, std::string_view b) { return a.name < b; });
  return found != tensors_.end() && found->name == name ? &*found : nullptr;
}

std::string Checkpoint::where(const CheckpointTensor& tensor) const {
  return fmt::format("{}: tensor {}", shards_[static_cast<std::size_t>(tensor.shard)].path(),
                     quote(tensor.name));
}

void Checkpoint::read(const CheckpointTensor& tensor, std::int64_t offset,
                      std::span<std::byte> out) const {
  const auto size = static_cast<std::int64_t>(out.size());
  NIBBLE_CHECK(offset >= 0 && size <= tensor.bytes && offset <= tensor.bytes - size,
               "bytes [{}, {}) of {}", offset, offset + size, tensor.bytes);
  shards_[static_cast<std::size_t>(tensor.shard)].read_at(tensor.offset + offset, out);
}

}  // namespace nibble::checkpoint
