#include "ops/cuda/step_graphs.h"

#include <algorithm>
#include <bit>

#include "ops/cuda/cuda_error.h"

namespace nibble::ops::cuda {
namespace {

constexpr std::uint64_t kLeastContext = 1024;

// The next of 1, 2, 3, 4, 6, 8, 12, ...
std::int64_t rows_of_bucket(std::int64_t rows) {
  const auto whole = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(rows)));
  return rows <= whole * 3 / 4 ? whole * 3 / 4 : whole;
}

}  // namespace

GraphKey GraphKey::of(const PassKey& pass, std::int64_t rows, std::int64_t context) {
  return {pass, std::min(rows_of_bucket(rows), pass.max_rows),
          static_cast<std::int64_t>(
              std::bit_ceil(std::max(kLeastContext, static_cast<std::uint64_t>(context))))};
}

bool StepGraphs::launch(const GraphKey& key) {
  const auto found = std::ranges::find(graphs_, key, &Graph::key);
  if (found == graphs_.end()) return false;
  found->used = ++launches_;
  NIBBLE_CUDA(cudaGraphLaunch(found->exec, stream_));
  return true;
}

void StepGraphs::capture(const GraphKey& key, const std::function<void()>& pass) {
  cudaGraph_t graph = nullptr;
  // Other threads' CUDA calls are none of its business.
  NIBBLE_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
  try {
    pass();
  } catch (...) {
    (void)cudaStreamEndCapture(stream_, &graph);
    if (graph) (void)cudaGraphDestroy(graph);
    throw;
  }
  NIBBLE_CUDA(cudaStreamEndCapture(stream_, &graph));
  Graph made{key, nullptr, launches_};
  const cudaError_t error = cudaGraphInstantiate(&made.exec, graph, 0);
  (void)cudaGraphDestroy(graph);
  NIBBLE_CUDA(error);
  if (graphs_.size() == kMost) {
    const auto oldest = std::ranges::min_element(graphs_, {}, &Graph::used);
    (void)cudaGraphExecDestroy(oldest->exec);
    graphs_.erase(oldest);
  }
  graphs_.push_back(made);
}

void StepGraphs::clear() {
  for (const Graph& graph : graphs_) (void)cudaGraphExecDestroy(graph.exec);
  graphs_.clear();
}

}  // namespace nibble::ops::cuda
