// What the device files offer to the host files: a struct of plain values a kernel, and a function that launches it. Contracts
// are those of src/ops/*.h, checked by the callers; n > 0. Device files see no fmt and no checks: nvcc cannot read fmt.
//
// Pointers are to device memory. Every function throws Error when the launch fails.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "nibble/types.h"
#include "ops/batch.h"
#include "ops/matrix.h"
#include "ops/rope.h"
#include "ops/row_pool.h"

namespace nibble::ops::cuda {

inline constexpr int kMaxStreams = 8;  // of the hyper-connections
inline constexpr int kMaxChosen = 32;  // experts a token

// The batch of a step, where begin_step() copied it.
struct BatchRows {
  const std::int32_t* segment = nullptr;  // [n] index into `segments`; -1: a padding row
  const Segment* segments = nullptr;
  const std::int32_t* pages = nullptr;  // of the batch: Segment::first_page

#ifdef __CUDACC__
  __device__ bool padding(std::int64_t n) const {
    return segment[n] < 0;
  }
  __device__ const Segment& of(std::int64_t n) const {
    return segments[segment[n]];
  }
  // -1 for padding rows, which so see no keys and no entries.
  __device__ std::int64_t position(std::int64_t n) const {
    return padding(n) ? -1 : of(n).position + n - of(n).first_row;
  }
#endif
};

// A RowPool or a PagedPool with its row size worked out; a group is a slot or a page.
struct Pool {
  std::byte* data = nullptr;
  RowFormat format = RowFormat::kF32;
  int width = 0;
  std::int64_t group_rows = 0;
  std::int64_t row_bytes = 0;

#ifdef __CUDACC__
  __device__ std::byte* row(std::int64_t group, std::int64_t r) const {
    return data + (group * group_rows + r) * row_bytes;
  }
  __device__ std::byte* at_position(std::int64_t slot, std::int64_t position) const {
    return row(slot, position % group_rows);
  }
  // Entry w of the sequence that has these pages.
  __device__ std::byte* entry(const std::int32_t* pages, std::int64_t w) const {
    return row(pages[w / group_rows], w % group_rows);
  }
#endif
};

// False: the binary holds no machine code for the current device.
bool has_code_for_this_device();

// --- dense.cu ---

// streams [n, hc, d]; ids [n], where kPaddingId gives zeros
void launch_embed(const TokenId* ids, std::int64_t n, const Matrix& table, float* streams, int hc,
                  int d, cudaStream_t stream);
// x, y [n, d]; may be the same
void launch_rms_norm(const float* x, std::int64_t n, const float* weight, int d, float eps,
                     bool release, float* y, cudaStream_t stream);
// y = x on the FP8 grid in groups of 128 channels (the last may be shorter); may be the same. x, y [n, d]
void launch_fp8_round(const float* x, std::int64_t n, std::int64_t d, float* y,
                      cudaStream_t stream);
// x [n, groups * cols], y [n, rows]: row r sees the columns of group r / (rows / groups)
void launch_linear(const float* x, std::int64_t n, const Matrix& weight, int groups, float* y,
                   bool round_output, cudaStream_t stream);
// e [n, d], streams [n, hc, d]
void launch_stream_add(const float* e, std::int64_t n, float* streams, int hc, int d, bool release,
                       cudaStream_t stream);

// --- sm90/linear.cu: matrices in tiles (tiles.h) ---

struct StreamedLinear {
  const float* x;  // [n, groups * cols], on the bf16 grid
  Matrix weight;   // [rows, cols]
  int groups;      // row r sees the columns of group r / (rows / groups)
  float* y;        // [n, rows]
  bool fp8_input;  // round x to FP8 in groups of 128
  bool round_output;
  std::byte* workspace;  // linear_workspace_bytes(), 256-byte aligned
};
std::int64_t linear_workspace_bytes(const Matrix& weight, bool fp8_input, std::int64_t n);
// Whether the matrix is one that launch_streamed_linear takes.
bool streams_linear(const Matrix& weight, int groups);
void launch_streamed_linear(const StreamedLinear& args, std::int64_t n, cudaStream_t stream);

// --- hyper_connection.cu ---

struct Boundary {
  float* streams;                         // [n, hc, d]
  const float* out;                       // [n, d]; null: nothing pending
  float* post;                            // [n, hc]
  float* comb;                            // [n, hc, hc]
  const float *fn, *base, *scale, *norm;  // HcSite, and the norm's weight
  float* y;                               // [n, d]
  int hc, d;
  float rms_eps, hc_eps;
  int sinkhorn_iters;
  bool release;
};
void launch_hc_boundary(const Boundary& args, std::int64_t n, cudaStream_t stream);

struct HcHead {
  const float* streams;                   // [n, hc, d]
  const float *fn, *base, *scale, *norm;  // [hc, hc * d], [hc], [1], [d] or null
  float* y;                               // [n, d]
  int hc, d;
  float rms_eps, hc_eps;
  bool release;
};
void launch_hc_head(const HcHead& args, std::int64_t n, cudaStream_t stream);
// y [n, width]: d columns from `first` on
void launch_stream_mean(const float* streams, std::int64_t n, int hc, int d, bool release, float* y,
                        std::int64_t width, std::int64_t first, cudaStream_t stream);
void launch_hc_expand(float* streams, const float* out, const float* post, const float* comb,
                      std::int64_t n, int hc, int d, bool release, cudaStream_t stream);

// --- attention.cu ---

// q [n, heads, hd]
void launch_query_norm_rope(float* q, std::int64_t n, BatchRows rows, int heads, int hd, float eps,
                            RopeTable rope, bool release, cudaStream_t stream);
// kv [n, width of the window's rows]
void launch_window_insert(const float* kv, std::int64_t n, BatchRows rows, const float* norm,
                          float eps, RopeTable rope, const Pool& step, const Pool& window,
                          bool release, cudaStream_t stream);
void launch_window_commit(std::int64_t n, BatchRows rows, const Pool& step, const Pool& window,
                          cudaStream_t stream);

struct Attention {
  const float* q;  // [n, heads, hd]
  BatchRows rows;
  Pool step, window_rows, entries;
  const std::int32_t* selected;  // [n, topk]; null: all visible entries
  const float* sink;             // [heads]
  RopeTable rope;
  float* o;  // [n, heads, hd]
  float scale;
  int heads, hd, window, ratio, topk;
  bool whole_segment;
  bool release;
};
// most_keys: no query of the batch has more
void launch_sparse_attention(const Attention& args, std::int64_t n, std::int64_t most_keys,
                             cudaStream_t stream);

// --- compress.cu ---

struct Compress {
  const float *values, *gates, *ape,
      *norm;  // [n, state.width] twice, [ratio, state.width], [width of the entries]
  BatchRows rows;
  StatePool state;
  Pool entries;
  RopeTable rope;
  float eps;
  int ratio;
  bool overlap, release;

#ifdef __CUDACC__
  __device__ std::int64_t state_at(std::int64_t slot, std::int64_t position) const {
    return (slot * state.ring + position % state.ring) * state.width;
  }
#endif
};
// all_fit: every segment fits_ring(), and one launch does it all
void launch_compress(const Compress& args, std::int64_t n, bool all_fit, cudaStream_t stream);

struct Select {
  float* q;              // [n, heads, width of the keys], destroyed
  const float* weights;  // [n, heads]
  BatchRows rows;
  RopeTable rope;
  Pool keys;
  float* scores;           // [n, most]; unused when most <= topk
  std::int32_t* selected;  // [n, topk]
  std::int64_t most;       // no query of the batch sees more entries
  int heads, ratio, topk;
  bool release;

#ifdef __CUDACC__
  __device__ std::int64_t visible(std::int64_t n) const {
    return (rows.position(n) + 1) / ratio;
  }
#endif
};
void launch_index_select(const Select& args, std::int64_t n, cudaStream_t stream);

// --- copy.cu ---

// y[i] = x[rows[i]] for m rows of `width` floats
void launch_gather_rows(const float* x, const std::int32_t* rows, std::int64_t m,
                        std::int64_t width, float* y, cudaStream_t stream);

struct StagedRange {
  std::byte* data;
  std::int64_t offset;  // in the staging buffer
  std::int64_t bytes;
};
// Ranges to the staging buffer, or from it.
void launch_copy_ranges(const StagedRange* ranges, std::int64_t count, std::byte* staging,
                        bool to_staging, cudaStream_t stream);

// --- argmax.cu ---

// x [n, width], best [n]
void launch_argmax_rows(const float* x, std::int64_t n, std::int64_t width, std::int32_t* best,
                        cudaStream_t stream);

// --- moe.cu ---

struct Route {
  const float* x;       // [n, D]
  const float* logits;  // [n, E] gate . x where it is known, else null
  Matrix gate;
  const float* bias;               // [E]; null: hash routing
  const std::int32_t* hash_table;  // [vocab, chosen]; null: score routing
  const TokenId* ids;              // [n], null without hash routing; kPaddingId gets experts -1
  float scaling;
  std::int32_t* experts;  // [n, chosen]
  float* weights;         // [n, chosen]
  int chosen;
};
void launch_route(const Route& args, std::int64_t n, cudaStream_t stream);
// sm90/route.cu, from logits.
bool chooses_in_registers(const Route& args);
void launch_choose(const Route& args, std::int64_t n, cudaStream_t stream);

struct ExpertMatrices {
  Matrix w1, w3, w2;
};
struct Experts {
  const float* x;               // [n, d]
  const float* x_fp8;           // x on the FP8 grid, for matrices that take it so; release only
  const std::int32_t* experts;  // [n, chosen]; a row whose first is negative is a padding row
  const float* weights;
  const ExpertMatrices* routed;  // [E]
  ExpertMatrices shared;
  float* hidden;  // [n, chosen + 1, inner]; on the FP8 grid in the end where w2 takes it so
  float* parts;   // [n, chosen + 1, d]
  float* y;       // [n, d]
  std::int64_t d, inner;
  float limit;
  int chosen, total;  // experts a token; experts
  bool release;

#ifdef __CUDACC__
  __device__ bool padding(std::int64_t t) const {
    return experts[t * chosen] < 0;
  }
  // Slot j of token t: a routed expert, or behind them the shared one.
  __device__ const ExpertMatrices& at(std::int64_t t, int j) const {
    return j < chosen ? routed[experts[t * chosen + j]] : shared;
  }
#endif
};
void launch_experts(const Experts& args, std::int64_t n, cudaStream_t stream);

// --- sm90/experts.cu: all matrices in tiles, the routed ones of one format; release numerics. `hidden` and `parts` are unused. ---

bool streams_experts(const Experts& args, quant::Format routed);
std::int64_t expert_workspace_bytes(const Experts& args, std::int64_t n);
void launch_streamed_experts(const Experts& args, quant::Format routed, std::int64_t n,
                             std::byte* workspace, cudaStream_t stream);

}  // namespace nibble::ops::cuda
