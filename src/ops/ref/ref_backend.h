// The specification: plain fp32 loops, one function an op, no threads, no intrinsics. Used by
// tests, by `--device ref`, and by other backends' op tables as the answer to compare with.
#pragma once

#include <vector>

#include "ops/backend.h"
#include "ops/host_memory.h"

namespace nibble::ops::ref {

class RefBackend : public Backend {
 public:
  using Backend::Backend;

  std::string description() const override { return "ref (plain loops, 1 thread)"; }
  KernelInfo kernel(OpKind op, quant::Format format) const override;

  tensor::View allocate(tensor::DType dtype, const tensor::Shape& shape) override;
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
  HostMemory memory_;
};

}  // namespace nibble::ops::ref
