// Every op in plain CUDA: fp32 accumulation, one thread block or warp a row, no tensor cores. On Hopper, in release numerics,
// matrices of the shapes and formats of tiles.h are kept in the order its kernels stream, and products with them run on the
// tensor cores (sm90/); the plain kernels serve the rest, and are what those are compared with.
//
// Same bits: a row's result depends on its own sequence alone. Sums run in an order fixed by their length, tokens only share
// loads, and nothing is added atomically.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "ops/backend.h"
#include "ops/cuda/device_memory.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/step_graphs.h"

namespace nibble::ops::cuda {

// GPUs that this process can use; 0 without a driver. Never throws.
int device_count();

class CudaBackend : public Backend {
 public:
  // Takes GPU `device`. Throws Error: no driver or an old one, no such GPU, one this binary holds no code for.
  // graphs: passes of decode steps are captured and repeated as CUDA graphs.
  explicit CudaBackend(Numerics numerics, int device = 0, bool graphs = true);
  ~CudaBackend() override;

  std::string description() const override { return description_; }
  KernelInfo kernel(OpKind op, quant::Format format) const override;
  KernelInfo kernel(OpKind op, quant::Format format, std::int64_t rows,
                    std::int64_t cols) const override;

  tensor::View allocate(tensor::DType dtype, const tensor::Shape& shape) override;
  Matrix upload(quant::HostMatrix matrix) override;
  tensor::View upload(std::span<const float> values, const tensor::Shape& shape) override;
  tensor::View upload(std::span<const std::int32_t> values, const tensor::Shape& shape) override;
  void download(const tensor::View& view, std::span<std::byte> host) override;
  void save_ranges(std::span<const ByteRange> ranges, std::span<std::byte> host) override;
  void load_ranges(std::span<const ByteRange> ranges, std::span<const std::byte> host) override;
  void begin_step(const Batch& batch) override;
  // As a graph when no segment is longer than a ring has slack for: prompts' steps pass once, and in many sizes.
  void run_pass(const PassKey& key, const Batch& batch, const PassOps& ops) override;

  void embed(const EmbedArgs& args) override;
  void gather_rows(const GatherRowsArgs& args) override;
  void rms_norm(const RmsNormArgs& args) override;
  void linear(const LinearArgs& args) override;
  void grouped_linear(const GroupedLinearArgs& args) override;
  void hc_boundary(const HcBoundaryArgs& args) override;
  void hc_expand(const HcExpandArgs& args) override;
  void hc_head(const HcHeadArgs& args) override;
  void stream_add(const StreamAddArgs& args) override;
  void stream_mean(const StreamMeanArgs& args) override;
  void query_norm_rope(const QueryNormRopeArgs& args) override;
  void window_insert(const WindowInsertArgs& args) override;
  void window_commit(const WindowCommitArgs& args) override;
  void compress(const CompressArgs& args) override;
  void index_select(const IndexSelectArgs& args) override;
  void sparse_attention(const SparseAttentionArgs& args) override;
  void route(const RouteArgs& args) override;
  void routed_experts(const RoutedExpertsArgs& args) override;
  void argmax_rows(const ArgmaxRowsArgs& args) override;

  std::int64_t device_bytes() const { return arena_.bytes(); }
  const StepGraphs& graphs() const { return graphs_; }

 private:
  // Small host data that many ops of a step need again: copied once, and found by its contents afterwards. A pointer holds until
  // many other values have been asked for, so for the op that asks.
  class HostCopies {
   public:
    explicit HostCopies(cudaStream_t& stream) : stream_(stream) {}
    template <typename T>
    const T* get(std::span<const T> values) {
      return static_cast<const T*>(get(values.data(), values.size_bytes()));
    }
    // These bytes lie at `device` already. Both are borrowed until the next call.
    void know(std::span<const std::byte> host, const void* device) {
      known_ = host;
      known_device_ = device;
    }

   private:
    struct Copy {
      std::vector<std::byte> host;
      std::unique_ptr<Scratch> device;
      std::uint64_t used = 0;  // when, counted in calls
    };
    const void* get(const void* data, std::size_t bytes);

    cudaStream_t& stream_;
    std::vector<Copy> copies_;
    std::uint64_t calls_ = 0;
    std::span<const std::byte> known_;
    const void* known_device_ = nullptr;
  };
  // A layer's routed experts as an array in device memory, made once.
  struct ExpertTable {
    std::vector<ExpertMatrices> host;
    const ExpertMatrices* device = nullptr;
    bool one_format_in_tiles = false;  // what the kernels for one architecture need
  };
  const ExpertTable& expert_table(std::span<const ExpertWeights> experts);
  static bool in_tiles(const ExpertWeights& expert);  // all three, and of one format

  // The step's batch on the device.
  struct StepData {
    std::size_t rows = 0, segments = 0, pages = 0;  // that there is room for
    std::size_t segments_at = 0, segment_count = 0, page_count = 0;
    std::vector<std::byte> host;
    std::vector<std::int32_t> row_segment;
    std::int64_t context = 0;  // of the graph that the step's launches belong to; 0: none
    Scratch device;
    BatchRows on_device;
  };
  // Tokens that a row of the batch sees at most, its own included: what launches are sized for.
  std::int64_t context_of(const Batch& batch) const;
  // A contract check too: the batch is the step's.
  BatchRows rows_of(const Batch& batch);
  // The ranges, and where each one lies among the host's bytes, on the device.
  const StagedRange* staged(std::span<const ByteRange> ranges, std::size_t host);
  tensor::View copy_in(const void* values, std::int64_t count, tensor::DType dtype,
                       const tensor::Shape& shape);
  // x rounded to the FP8 grid in groups of 128 channels, in scratch memory.
  const float* fp8_rounded(const float* x, std::int64_t n, std::int64_t d);
  // A matrix that streams_linear() takes.
  void stream_linear(const float* x, std::int64_t n, const Matrix& weight, int groups, float* y,
                     bool fp8_input, bool round_output);
  Matrix upload_tiles(const quant::HostMatrix& matrix);
  static Pool device_pool(const RowPool& pool);
  static Pool device_pool(const PagedPool& pool);

  cudaStream_t stream_ = nullptr;
  std::string description_;
  DeviceArena arena_;
  HostCopies copies_{stream_};
  StepData step_;
  std::uint64_t moves_ = 0;  // of memory that graphs refer to
  Scratch rounded_{&moves_}, index_scores_{&moves_}, hidden_{&moves_}, parts_{&moves_},
      logits_{&moves_}, linear_workspace_{&moves_}, expert_workspace_{&moves_};
  Scratch staging_, staged_ranges_;
  Scratch published_codes_, published_scales_;  // of the matrix that is being uploaded
  bool tiles_ = false;                          // weights are kept in the order of tiles.h
  std::vector<StagedRange> staged_;
  std::unordered_map<const void*, ExpertTable> expert_tables_;  // by the first expert's weights
  const bool use_graphs_;
  StepGraphs graphs_{stream_};
  std::uint64_t graph_moves_ = 0;  // moves_ when they were captured
  std::vector<TokenId> padded_ids_;
};

}  // namespace nibble::ops::cuda
