// The host backend: SIMD where the processor has it, a team of threads for the loops of a step.
//
// A row's result never depends on the other rows of the step, on how a prompt is cut into steps, or
// on the number of threads: every sum has one order (kernels.h), and threads share out whole
// outputs only.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/thread_pool.h"
#include "ops/backend.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/rope_angles.h"
#include "ops/cpu/scratch.h"
#include "ops/host_memory.h"

namespace nibble::ops::cpu {

class CpuBackend : public Backend {
 public:
  // The pool outlives the backend; nothing else uses it during an op. `isa` is for tests: the
  // results do not depend on it.
  CpuBackend(Numerics numerics, ThreadPool& pool, Isa isa = detect_isa());

  std::string description() const override;
  KernelInfo kernel(OpKind op, quant::Format format) const override;

  tensor::View allocate(tensor::DType dtype, const tensor::Shape& shape) override;
  // Repacks into panels (panel.h). Throws CheckpointError when a code or scale is NaN.
  Matrix upload(quant::HostMatrix matrix) override;
  tensor::View upload(std::span<const float> values, const tensor::Shape& shape) override;
  tensor::View upload(std::span<const std::int32_t> values, const tensor::Shape& shape) override;
  void download(const tensor::View& view, std::span<std::byte> host) override;
  void save_ranges(std::span<const ByteRange> ranges, std::span<std::byte> host) override;
  void load_ranges(std::span<const ByteRange> ranges, std::span<const std::byte> host) override;
  void begin_step(const Batch&) override {}

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

 private:
  using Body = std::function<void(std::int64_t begin, std::int64_t end)>;

  // Shares [0, count) out among the threads in pieces worth waking one for, given what an item
  // costs alone; one piece runs right here.
  template <typename Function>
  void parallel(std::int64_t count, double item_ns, const Function& body) {
    run_pieces(count, item_ns, Body(std::ref(body)));  // a reference: no allocation
  }
  // body(segment, i) for row i of every segment.
  template <typename Function>
  void for_each_row(const Batch& batch, double row_ns, const Function& body) {
    for (const Segment& seg : batch.segments)
      parallel(seg.rows, row_ns, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) body(seg, i);
      });
  }
  void run_pieces(std::int64_t count, double item_ns, const Body& body);

  // y[t] = rms_norm(x[t]) * weight (null: none) for one row, as every op that norms does it.
  void norm_row(const float* x, const float* weight, std::int64_t n, float eps, float* y) const;
  // x *= rsqrt(mean(x^2) + eps) for a query head; release: in bf16 arithmetic.
  void query_norm_row(float* x, std::int64_t n, float eps) const;
  // The rows x[0..n) of `cols` floats, FP8-rounded in blocks of 128 into scratch when asked to.
  const float* rounded_input(const float* x, std::int64_t n, std::int64_t cols, bool quantize);
  // y[t][r] = weight row r * block g of x[t], where g = r / (rows / groups); x [n, groups * cols],
  // y [n, rows]; round: to bf16.
  void multiply(const Matrix& weight, int groups, const float* x, std::int64_t n, bool round,
                float* y);

  void attend_together(const SparseAttentionArgs& args, const Segment& segment, std::int64_t i);
  void attend_apart(const SparseAttentionArgs& args);

  // A piece of work: [begin, end) of something in an expert or a segment.
  struct Tile {
    std::int32_t group, begin, end;
  };

  const Kernels& k_;
  ThreadPool& pool_;
  HostMemory memory_;
  RopeAngles angles_;
  // Scratch of an op, never kept from one to the next.
  Scratch<float> rounded_, logits_, hidden_, expert_out_, keys_, scores_;
  std::vector<const float*> row_pointers_;
  std::vector<std::int32_t> slots_, first_slot_, slot_cursor_;
  std::vector<Tile> tiles_;
};

}  // namespace nibble::ops::cpu
