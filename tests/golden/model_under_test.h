// A random golden checkpoint loaded into a backend, and what a run of it shows.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/model_runner.h"
#include "golden/random_checkpoint.h"

namespace nibble::testing {

// A folder of its own under the system's temporary folder, removed at the end.
class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// False: a GPU is asked for, and this build or machine has none.
bool has_device(DeviceKind device);
const char* device_name(DeviceKind device);  // "ref", "cpu" or "cuda"

// Writes the checkpoint into the folder and loads it: two threads, 1024 tokens a slot, steps of up to 700 rows, rows of fp32
// with exact activations and the release's own otherwise.
std::unique_ptr<engine::ModelRunner> load_random(const ScratchFolder& folder,
                                                 const RandomCheckpointSpec& spec,
                                                 DeviceKind device, Activations activations,
                                                 int slots = 1);

// Rows of every tapped value, one a position, as a run went through them.
struct Trace {
  std::map<int, std::vector<std::vector<float>>> streams;          // layer -> position -> [hc * D]
  std::map<int, std::vector<std::vector<std::int32_t>>> selected;  // layer -> position -> [topk]
  std::map<int, std::vector<std::vector<std::int32_t>>> experts;   // layer -> position -> [k]
  std::map<int, std::vector<std::vector<float>>> expert_weights;   // layer -> position -> [k]
  std::vector<std::vector<float>> logits;                          // position -> [V]
  std::vector<std::vector<float>> mtp1_logits, mtp2_logits;        // position -> [V]
  std::vector<std::vector<float>> mtp1_streams, mtp2_streams;      // position -> [hc * D]
};

struct RunOptions {
  int chunk = 0;         // rows a step; 0: all at once
  bool drafter = false;  // run the MTP block over the same rows, depth 1
};

// All pages of the cache, from the last to the first, for the one sequence there is.
std::vector<std::int32_t> all_pages(const engine::ModelRunner& runner);

// Feeds ids from position 0 in chunks and keeps everything.
Trace run(engine::ModelRunner& runner, const std::vector<TokenId>& ids, const RunOptions& options);

// Greedy continuation of `ids`, one token a step.
std::vector<TokenId> greedy(engine::ModelRunner& runner, const std::vector<TokenId>& ids,
                            int count);

}  // namespace nibble::testing
