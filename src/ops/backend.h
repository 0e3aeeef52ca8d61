// The op contract: one class a backend, one method an op. The argument headers state shapes, orders
// and rounding.
//
// Thread: all calls come from the engine's thread. Failure: a violated contract is a NIBBLE_CHECK;
// ops do not fail otherwise.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ops/argmax.h"
#include "ops/attention.h"
#include "ops/copy.h"
#include "ops/embed.h"
#include "ops/hyper_connection.h"
#include "ops/linear.h"
#include "ops/moe.h"
#include "ops/numerics.h"
#include "ops/rms_norm.h"

namespace nibble::ops {

enum class OpKind {
  kEmbed,
  kNorm,
  kLinear,
  kGroupedLinear,
  kHyperConnection,
  kAttention,
  kIndexer,
  kCompressor,
  kRouter,
  kExperts
};

// Which implementation serves an op on weights of a format, and on which unit of the processor.
struct KernelInfo {
  std::string name;  // "cpu.linear.avx2"
  std::string unit;  // "tensor core", "vector" or "scalar"
};

// A pass of a model: with equal keys, batches of the same shape take the same ops on the same memory.
struct PassKey {
  const void* model = nullptr;
  const void* cache = nullptr;  // its first row
  const void* input = nullptr;  // what the pass reads besides its batch; null: nothing
  std::int64_t max_rows = 0;    // that the memory of the pass has room for

  bool operator==(const PassKey&) const = default;
};
using PassOps = std::function<void(const Batch& batch)>;

class Backend {
 public:
  explicit Backend(Numerics numerics) : numerics_(numerics) {}
  virtual ~Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  const Numerics& numerics() const { return numerics_; }
  virtual std::string description() const = 0;  // "cpu (AVX2, 2 threads)"
  virtual KernelInfo kernel(OpKind op, quant::Format format) const = 0;
  // The same for a matrix of that shape, where the choice depends on it.
  virtual KernelInfo kernel(OpKind op, quant::Format format, std::int64_t /*rows*/,
                            std::int64_t /*cols*/) const {
    return kernel(op, format);
  }

  // Memory of the backend; lives as long as the backend. allocate() zero-fills.
  virtual tensor::View allocate(tensor::DType dtype, const tensor::Shape& shape) = 0;
  virtual Matrix upload(quant::HostMatrix matrix) = 0;
  virtual tensor::View upload(std::span<const float> values, const tensor::Shape& shape) = 0;
  virtual tensor::View upload(std::span<const std::int32_t> values, const tensor::Shape& shape) = 0;
  // Copies a F32 or I32 view to the host; all earlier ops have finished when it returns.
  virtual void download(const tensor::View& view, std::span<std::byte> host) = 0;

  // Copies the ranges to the host, one after the other; all earlier ops have finished when it returns. And back: later ops see
  // the bytes. host.size() is the sum of the ranges' bytes.
  virtual void save_ranges(std::span<const ByteRange> ranges, std::span<std::byte> host) = 0;
  virtual void load_ranges(std::span<const ByteRange> ranges, std::span<const std::byte> host) = 0;

  // Names the batch of the ops that follow, which take it or parts of it: what they need of it goes to a device once. The batch
  // lives until the next call.
  virtual void begin_step(const Batch& batch) = 0;

  // Begins a step with the batch and calls `ops`, which runs a pass on the batch that it is given. That may be one with padding
  // rows behind the batch's own, up to key.max_rows in all: they touch no expert, page, ring or key, and what they leave in
  // activations is nobody's. And where the backend has what a pass of this key and shape launches from before, it repeats that
  // and does not call `ops`, so `ops` may decide nothing by the values of its batch and look at no results.
  virtual void run_pass(const PassKey& /*key*/, const Batch& batch, const PassOps& ops) {
    begin_step(batch);
    ops(batch);
  }

  virtual void embed(const EmbedArgs& args) = 0;
  virtual void gather_rows(const GatherRowsArgs& args) = 0;
  virtual void rms_norm(const RmsNormArgs& args) = 0;
  virtual void linear(const LinearArgs& args) = 0;
  virtual void grouped_linear(const GroupedLinearArgs& args) = 0;
  virtual void hc_boundary(const HcBoundaryArgs& args) = 0;
  virtual void hc_expand(const HcExpandArgs& args) = 0;
  virtual void hc_head(const HcHeadArgs& args) = 0;
  virtual void stream_add(const StreamAddArgs& args) = 0;
  virtual void stream_mean(const StreamMeanArgs& args) = 0;
  virtual void query_norm_rope(const QueryNormRopeArgs& args) = 0;
  virtual void window_insert(const WindowInsertArgs& args) = 0;
  virtual void window_commit(const WindowCommitArgs& args) = 0;
  virtual void compress(const CompressArgs& args) = 0;
  virtual void index_select(const IndexSelectArgs& args) = 0;
  virtual void sparse_attention(const SparseAttentionArgs& args) = 0;
  virtual void route(const RouteArgs& args) = 0;
  virtual void routed_experts(const RoutedExpertsArgs& args) = 0;
  virtual void argmax_rows(const ArgmaxRowsArgs& args) = 0;

 private:
  Numerics numerics_;
};

}  // namespace nibble::ops
