// model.safetensors.index.json: which tensor lies in which shard.
//
//   {"metadata": {"total_size": 159609485896}, "weight_map": {"embed.weight":
//   "model-00001-of-00046.safetensors", ...}}
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace nibble::checkpoint {

inline constexpr const char* kShardIndexName = "model.safetensors.index.json";
inline constexpr std::int64_t kMaxShardIndexBytes = 100'000'000;
inline constexpr std::size_t kMaxShards = 10'000;

struct ShardIndex {
  std::vector<std::string> shards;                // distinct file names, sorted
  std::unordered_map<std::string, int> shard_of;  // tensor name -> place in `shards`
  std::optional<std::uint64_t> total_size;        // bytes of all tensors, as claimed
};

// `path` is what messages call the file. Every shard is a plain name ending in .safetensors:
// anything that could leave the folder (slash, backslash, "..", NUL) is refused with the value.
// Throws CheckpointError naming path, tensor, and what was found.
ShardIndex parse_shard_index(const std::string& path, std::string_view text);

}  // namespace nibble::checkpoint
