// Any text as model.safetensors.index.json: refused with CheckpointError, or shards that stay
// inside the folder.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "checkpoint/folder.h"
#include "checkpoint/shard_index.h"
#include "nibble/status.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace nibble::checkpoint;
  try {
    const ShardIndex index =
        parse_shard_index("fuzz.json", {reinterpret_cast<const char*>(data), size});
    for (const std::string& shard : index.shards) {
      if (plain_name_problem(shard) || shard.find('/') != std::string::npos) std::abort();
    }
    for (const auto& [tensor, shard] : index.shard_of) {
      if (shard < 0 || static_cast<std::size_t>(shard) >= index.shards.size()) std::abort();
    }
  } catch (const nibble::CheckpointError&) {
  }
  return 0;
}
