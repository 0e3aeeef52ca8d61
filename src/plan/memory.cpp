#include "plan/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "nibble/engine.h"
#include "nibble/status.h"
#include "ops/row_pool.h"

namespace nibble::plan {
namespace {

using model::ModelConfig;

constexpr std::int64_t kHostChunk = 256;  // EngineOptions::prefill_chunk
// Tokens of a GPU's largest step: enough rows an expert (8192 * 6 / 256 = 192) to be bound by arithmetic.
constexpr std::int64_t kGpuChunk = 8192;
constexpr std::int64_t kDraftRows = 1;  // tokens drafted ahead
// Bytes; the index scores of longer contexts are computed in tiles.
constexpr std::int64_t kScoreTile = 256LL << 20;
// Bytes of a node of an instantiated graph: the most measured on an H200 (docs/perf-log.md); 3.1 kB in the mean.
constexpr std::int64_t kGraphNode = 5900;
// Attention over split key ranges: blocks that hold an fp32 partial output, two for each of an H200's 132 SMs.
constexpr std::int64_t kPartialBlocks = 264;

std::string number(std::int64_t bytes) {
  return fmt::format("{}", bytes);
}

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

class Memory {
 public:
  Memory(const ModelConfig& config, const WeightGroups& weights, const PlanOptions& options)
      : c_(config), w_(weights), o_(options), host_(is_host(options.gpu.machine.arch)) {}

  MemoryPlan run() {
    capacity();
    weights();
    cache();
    if (host_) {
      host_workspace();
    } else {
      gpu_workspace();
      graphs();
    }
    return std::move(m_);
  }

 private:
  bool drafting() const { return o_.draft && w_.drafter != Drafter::kNone; }

  void line(std::string what, std::string how, std::int64_t value) {
    m_.lines.push_back({std::move(what), std::move(how), number(value)});
  }

  void capacity() {
    const Machine& machine = o_.gpu.machine;
    m_.capacity =
        static_cast<std::int64_t>(static_cast<double>(machine.capacity_bytes) * machine.usable);
    line("capacity",
         fmt::format("{} bytes x {:.2f} usable", machine.capacity_bytes, machine.usable),
         m_.capacity);
  }

  void weights() {
    const int n = o_.gpu.count;
    for (const WeightGroup& g : w_.groups) {
      if (g.draft && !drafting()) continue;
      const Share share = split_share(g.split, c_, n);
      const std::int64_t here = share.of(g.bytes);
      const bool copied = n > 1 && g.split == Split::kWhole;
      (g.draft ? m_.draft : copied ? m_.replicated : m_.weights) += here;
      line(g.part.empty() ? g.kind : fmt::format("{}: {}, {}", g.kind, g.part, g.format),
           copied ? fmt::format("{} bytes, whole on every GPU", g.bytes)
                  : fmt::format("{} bytes x {}/{}", g.bytes, share.mine, share.all),
           here);
    }
    if (w_.drafter != Drafter::kNone && !drafting()) line("drafter", "--draft off", 0);
  }

  void cache() {
    const RowSizes rows = row_sizes(c_, resolve_kv_dtype(o_.kv_dtype, c_, o_.gpu.machine.arch));
    const SequenceBytes one =
        sequence_bytes(c_, rows, kCacheLayout, o_.context, drafting() ? w_.draft_stages : 0);
    const std::int64_t n = o_.concurrency, budget = EngineOptions{}.snapshot_bytes;
    m_.kv = n * one.entries;
    m_.state = n * (one.windows + one.open_state);
    (host_ ? m_.snapshots : m_.host_snapshots) = budget;
    m_.draft += n * one.draft;
    line("kv",
         fmt::format("{} x {} bytes of {} rows ({} B) and index keys ({} B) at {} "
                     "tokens, whole on every GPU",
                     n, one.entries, rows.name, rows.row, rows.index_key, o_.context),
         m_.kv);
    line(
        "state",
        fmt::format("{} x (windows {} + open compressor state {})", n, one.windows, one.open_state),
        m_.state);
    line("snapshots",
         fmt::format("--prefix-cache-mib of host memory, for {} of {} bytes and more",
                     budget / std::max<std::int64_t>(one.snapshot, 1), one.snapshot),
         budget);
    if (one.draft > 0)
      line("drafter's windows", fmt::format("{} x {}", n, one.draft), n * one.draft);
  }

  // model::Workspace: fp32, for a step of every sequence's rows.
  void host_workspace() {
    const std::int64_t d = c_.hidden_size, hc = c_.hc_mult, hd = c_.head_dim,
                       di = c_.index_head_dim;
    const std::int64_t heads = c_.num_heads, index_heads = c_.index_heads;
    const std::int64_t top = c_.experts_per_token;
    const std::int64_t values =
        3 * hc * d + hc + hc * hc + 4 * d + c_.q_lora_rank + 2 * heads * hd + hd +
        static_cast<std::int64_t>(c_.o_groups) * c_.o_lora_rank + 4 * hd + 4 * di +
        index_heads * di + index_heads + c_.index_topk + 2 * top + c_.vocab_size +
        (c_.dspark ? static_cast<std::int64_t>(c_.dspark->target_layers.size()) * d : 0);
    const std::int64_t rows = kHostChunk * o_.concurrency;
    const std::int64_t stored =
        row_sizes(c_, resolve_kv_dtype(o_.kv_dtype, c_, o_.gpu.machine.arch)).row;
    m_.workspace = rows * (values * static_cast<std::int64_t>(sizeof(float)) + stored);
    line("workspace",
         fmt::format(
             "{} rows x ({} fp32 values (streams, projections, logits) + {} for a cache row)", rows,
             values, stored),
         m_.workspace);
  }

  void gpu_workspace() {
    const std::int64_t rows = step_rows(o_), n = o_.gpu.count;
    const std::int64_t d = c_.hidden_size, hd = c_.head_dim, k = c_.experts_per_token;
    const std::int64_t di = c_.index_head_dim;
    const std::int64_t heads = ceil_div(c_.num_heads, n), inner = ceil_div(c_.expert_dim, n);
    const auto add = [&](const char* what, std::string how, std::int64_t bytes) {
      m_.workspace += bytes;
      line(what, std::move(how), bytes);
    };
    add("workspace: residual streams",
        fmt::format("{} rows x 2 (old and new) x {} streams x {} x bf16", rows, c_.hc_mult, d),
        rows * 2 * c_.hc_mult * d * 2);
    add("workspace: attention",
        fmt::format("{} rows x ({} heads x {} x 2 + {} + {} + {}) x bf16 + compressors {} x fp32",
                    rows, heads, hd, c_.q_lora_rank, hd, ceil_div(c_.o_groups, n) * c_.o_lora_rank,
                    4 * hd + 4 * di),
        rows * (heads * hd * 2 + c_.q_lora_rank + hd + ceil_div(c_.o_groups, n) * c_.o_lora_rank) *
                2 +
            rows * (4 * hd + 4 * di) * 4);
    const std::int64_t scores = rows * (o_.context / 4) * 4;
    add("workspace: index scores",
        fmt::format("{} rows x {} entries x fp32, at most {}, and {} selected ids a row", rows,
                    o_.context / 4, kScoreTile, c_.index_topk),
        std::min(scores, kScoreTile) + rows * c_.index_topk * 4);
    add("workspace: experts",
        fmt::format("{} rows x {} experts x (input {} fp8 + 2 x {} bf16 + {} fp8 + output {} bf16)",
                    rows, k, d, inner, inner, d),
        rows * k * (d + 2 * inner * 2 + inner + d * 2));
    const std::int64_t sampled = o_.concurrency * (1 + (drafting() ? kDraftRows : 0));
    add("workspace: logits", fmt::format("{} rows x {} x fp32", sampled, c_.vocab_size),
        sampled * c_.vocab_size * 4);
    add("workspace: attention partials",
        fmt::format("{} blocks x 64 heads x {} x fp32", kPartialBlocks, hd),
        kPartialBlocks * 64 * hd * 4);
    if (n > 1)
      add("workspace: all-reduce",
          fmt::format("2 slots x {} GPUs x {} rows x {} x bf16", n, rows, d), 2 * n * rows * d * 2);
  }

  // One graph for each power of two up to the concurrency, for the target and for the drafter.
  void graphs() {
    const auto sizes = static_cast<std::int64_t>(
        std::bit_width(std::bit_ceil(static_cast<unsigned>(o_.concurrency))));
    const std::int64_t nodes = step_launches(c_), kinds = drafting() ? 2 : 1;
    m_.graphs = sizes * kinds * nodes * kGraphNode;
    line(
        "graphs",
        fmt::format("{} batch size(s) x {} x {} nodes x {} bytes", sizes, kinds, nodes, kGraphNode),
        m_.graphs);
  }

  const ModelConfig& c_;
  const WeightGroups& w_;
  const PlanOptions& o_;
  const bool host_;
  MemoryPlan m_;
};

}  // namespace

bool is_host(ops::Arch arch) {
  return arch == ops::Arch::kRef || arch == ops::Arch::kCpuPortable || arch == ops::Arch::kCpuAvx2;
}

Share split_share(Split split, const ModelConfig& c, int gpus) {
  const auto share = [&](std::int64_t units) { return Share{ceil_div(units, gpus), units}; };
  switch (split) {
    case Split::kWhole:
      return {};
    case Split::kGroups:
      return share(c.o_groups);
    case Split::kIndexHeads:
      return share(c.index_heads);
    case Split::kInner:
      return share(ceil_div(c.expert_dim, 128));
    case Split::kVocab:
      return share(c.vocab_size);
  }
  return {};
}

KvDtype resolve_kv_dtype(KvDtype dtype, const ModelConfig& config, ops::Arch arch) {
  if (dtype != KvDtype::kAuto) return dtype;
  return !is_host(arch) || config.has_activation_scheme ? KvDtype::kFp8 : KvDtype::kFp32;
}

std::int64_t step_rows(const PlanOptions& options) {
  const std::int64_t chunk = is_host(options.gpu.machine.arch) ? kHostChunk : kGpuChunk;
  return std::max(std::min(chunk, options.context),
                  options.concurrency * (options.draft ? 1 + kDraftRows : 1));
}

std::int64_t step_launches(const ModelConfig& c) {
  // A layer: wq_a with wkv, wq_b, wo_a, wo_b; norms, RoPE and cache insertion; attention; two launches a boundary, two
  // boundaries; router; routed experts w1 with w3, w2; shared experts likewise. A compressed layer: projections, pooling.
  // A CSA layer: the indexer's query and key projections, scores, selection. Once: embedding, head mix, lm head, sampling.
  constexpr std::int64_t kLayer = 15, kCompressed = 2, kIndexed = 4, kOnce = 4;
  const LayerCounts n = layer_counts(c);
  return n.all() * kLayer + (n.csa + n.hca) * kCompressed + n.csa * kIndexed + kOnce;
}

void check_plannable(const ModelConfig& c, const PlanOptions& o) {
  const auto refuse = [](const char* key, const char* expected, int found) {
    throw CheckpointError(
        fmt::format("config.json: key '{}': expected {}, found {}", key, expected, found));
  };
  if (resolve_kv_dtype(o.kv_dtype, c, o.gpu.machine.arch) == KvDtype::kFp8) {
    if (c.head_dim <= ops::kRopeChannels)
      refuse("head_dim", "more than the 64 rotary channels of an fp8 row", c.head_dim);
    if (c.index_head_dim % ops::kFp4IndexBlock != 0)
      refuse("index_head_dim", "a multiple of 32 for fp4 index keys", c.index_head_dim);
  }
  // Everything below is at most this, in doubles, for as many sequences as a search may try.
  const double d = c.hidden_size, hd = c.head_dim, di = c.index_head_dim, n = kMostSequences;
  const double rows = std::max<double>(kGpuChunk, n * kHostChunk);
  const double layers = c.num_layers + c.num_mtp_layers, context = static_cast<double>(o.context);
  const double sequence = layers * (context + c.sliding_window + 1024.0) * 16.0 * (hd + di);
  const double row = 16.0 * (c.hc_mult * d + 2.0 * c.num_heads * hd + c.q_lora_rank +
                             static_cast<double>(c.o_groups) * c.o_lora_rank + hd + di +
                             static_cast<double>(c.index_heads) * di + c.index_topk + context +
                             c.experts_per_token * (2.0 * d + 4.0 * c.expert_dim) +
                             2.0 * c.vocab_size + kMaxGpus * d);
  if (n * sequence + rows * row > 4e18)
    throw CheckpointError("config.json: dimensions so large that memory cannot be counted");
}

MemoryPlan plan_memory(const ModelConfig& config, const WeightGroups& weights,
                       const PlanOptions& options) {
  return Memory(config, weights, options).run();
}

}  // namespace nibble::plan
