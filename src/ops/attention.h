// Attention over window rows and compressed entries (deepseek-v4.md 3).
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/batch.h"
#include "ops/rope.h"
#include "ops/row_pool.h"
#include "tensor/view.h"

namespace nibble::ops {

// q[n][h] *= rsqrt(mean(q[n][h]^2) + eps), then RoPE on the last channels at the row's position (3.1,
// 3.2), in place. Release: the norm is bf16 arithmetic as published (the squares, their fp32 mean, mean + eps, its
// reciprocal root and the product are each rounded), then bf16 after the rotation. query_norm_row in ops/ref/rounding.h.
struct QueryNormRopeArgs {
  Batch batch;
  tensor::View q;  // in, out [n, H, hd]
  float eps = 0.0f;
  RopeTable rope;
};

// row = rope(rms_norm(kv[n]) * norm) at the row's position, to row n of the step's rows; and into the window ring where that
// overwrites nothing the step still reads: rows of segments that fit_ring(). Release: bf16 after the norm and after the
// rotation; then whatever the row format rounds.
struct WindowInsertArgs {
  Batch batch;
  tensor::View kv;    // [n, hd]
  tensor::View norm;  // [hd] F32
  float eps = 0.0f;
  RopeTable rope;
  RowPool step;    // out: 1 slot of at least n rows
  RowPool window;  // out; the format and width of `step`
};

// After the step's attention: the last rows of segments that do not fit_ring(), from the step's rows into the window ring.
// Does nothing, and launches nothing, when all fit.
struct WindowCommitArgs {
  Batch batch;
  RowPool step;
  RowPool window;  // out
};

// Feeds tokens to a compressor and writes each entry that they close (3.5 ratio 128; 3.6 ratio 4,
// overlapping).
//   Positions of this step come from `values` and `gates`, earlier ones from the state ring, which has the step's last rows
//   afterwards. Gates are stored with ape[position mod ratio] added. Entry w closes with the token at position
//   ratio * w + ratio - 1:
//     e[d] = sum_j softmax_j(z_j[d]) c_j[d]
//   over the tokens of window w (not overlapping), or over the first halves of window w - 1 and the
//   second halves of window w (overlapping; window -1 is absent), and then
//     row = rope(rms_norm(e) * norm) at position ratio * w
// Release: bf16 before the norm, after it and after the rotation; then whatever the row format
// rounds (kFp4Index: Hadamard rotation, bf16, FP4 grid).
struct CompressArgs {
  Batch batch;
  tensor::View values;  // [n, W] F32: wkv x; W = width, or 2 * width when overlapping
  tensor::View gates;   // in, destroyed [n, W] F32: wgate x, without ape
  tensor::View ape;     // [ratio, W] F32
  tensor::View norm;    // [width] F32
  float eps = 0.0f;
  RopeTable rope;
  int ratio = 0;
  bool overlap = false;
  StatePool state;
  PagedPool entries;  // width channels
};

// The lightning indexer's choice (3.7): score(t, w) = sum_h weights[t][h] * relu(q[t][h] . key[w])
// over the visible entries w < floor((t + 1) / ratio); the `topk` largest, ties to the lower entry.
// When no more than topk are visible, all of them. q is rotated here (RoPE at the row's position;
// release: bf16), and when the key pool is kFp4Index, Hadamard-rotated, rounded to bf16 and to the
// FP4 grid.
// weights already carry the factor hd^-0.5 * heads^-0.5 when the caller wants it: a positive factor
// does not change the choice, so none is applied.
struct IndexSelectArgs {
  Batch batch;
  tensor::View q;        // in, destroyed [n, Hi, width]
  tensor::View weights;  // [n, Hi]
  RopeTable rope;
  int ratio = 0;
  PagedPool keys;
  int topk = 0;
  tensor::View selected;  // out I32 [n, topk]: ascending entry ids, -1 after the last
};

// o[n][h] = unrotate(sum_j p_j row_j), p = softmax over the keys with the head's sink in the
// denominator (3.3, 3.4). Keys of the query at position t, in this order: window rows max(0, t -
// window + 1) .. t, then the compressed entries: the selected ones, or all visible when `selected`
// is empty. The order of the sums is the order of the keys. Scores are shifted by the largest of
// them; the sink is not part of that maximum, and one so far above it that its exponential
// overflows leaves o = 0. Release: the numerators are rounded to bf16 before the sum over rows (the
// denominator is not), o to bf16, and again after unrotation.
struct SparseAttentionArgs {
  Batch batch;
  tensor::View q;         // [n, H, hd], rotated
  RowPool step;           // rows of this step's positions (window_insert)
  RowPool window_rows;    // of earlier ones; at least window + kDraftSlack a slot
  int window = 0;         // keys, the query's own included
  PagedPool entries;      // may be empty: sliding attention only
  int ratio = 0;          // of the entries
  tensor::View selected;  // I32 [n, topk], visible entries; or empty
  tensor::View sink;      // [H] F32
  float scale = 0.0f;     // hd^-0.5
  RopeTable rope;
  tensor::View o;  // out [n, H, hd]
  // A DSpark block (deepseek-v4.md 5.2): every query of a segment sees the `window` rows before the segment, and the segment's
  // own rows up to its last. Without entries.
  bool whole_segment = false;

  // The window rows that the segment's query at position t sees: first_seen() .. last_seen().
  std::int64_t first_seen(const Segment& segment, std::int64_t t) const {
    return std::max<std::int64_t>(0, whole_segment ? segment.position - window : t - window + 1);
  }
  std::int64_t last_seen(const Segment& segment, std::int64_t t) const {
    return whole_segment ? segment.position + segment.rows - 1 : t;
  }

  // Where a position that the segment's queries see is stored.
  const std::byte* window_row(const Segment& segment, std::int64_t position) const {
    return position >= segment.position
               ? step.row(0, segment.first_row + position - segment.position)
               : window_rows.row(segment.slot, position);
  }
};

}  // namespace nibble::ops
