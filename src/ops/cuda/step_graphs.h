// Passes of decode steps as CUDA graphs: captured once for each shape, launched as one thing afterwards.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "ops/backend.h"

namespace nibble::ops::cuda {

// What decides a pass's launches. Shapes are rounded up, so that few graphs serve all steps.
struct GraphKey {
  PassKey pass;
  std::int64_t rows = 0;     // padding rows included
  std::int64_t context = 0;  // tokens that a row may see, its own included

  bool operator==(const GraphKey&) const = default;

  // Rows: 1, 2, 3, 4, 6, 8, 12, 16, 24, ..., as far as the pass has room; context: a power of two, at least 1024.
  static GraphKey of(const PassKey& pass, std::int64_t rows, std::int64_t context);
};

// One thread. Functions throw Error when a CUDA call fails.
class StepGraphs {
 public:
  static constexpr std::size_t kMost =
      64;  // held; the one that was not launched the longest makes room

  // Borrows the stream, which exists at the first capture.
  explicit StepGraphs(cudaStream_t& stream) : stream_(stream) {}
  ~StepGraphs() { clear(); }
  StepGraphs(const StepGraphs&) = delete;
  StepGraphs& operator=(const StepGraphs&) = delete;

  // Launches the key's graph; false: there is none.
  bool launch(const GraphKey& key);
  // Keeps what `pass` launches as the key's graph; nothing of it runs. `pass` neither allocates, nor synchronises, nor copies
  // from pageable memory.
  void capture(const GraphKey& key, const std::function<void()>& pass);
  // Memory that graphs refer to has moved.
  void clear();

  std::size_t held() const { return graphs_.size(); }
  std::uint64_t launches() const { return launches_; }

 private:
  struct Graph {
    GraphKey key;
    cudaGraphExec_t exec = nullptr;
    std::uint64_t used = 0;  // in launches
  };

  cudaStream_t& stream_;
  std::vector<Graph> graphs_;
  std::uint64_t launches_ = 0;
};

}  // namespace nibble::ops::cuda
