// Manifold-constrained hyper-connections (deepseek-v4.md 2): the boundary between two sublayers as
// one op.
#pragma once

#include "tensor/view.h"

namespace nibble::ops {

// Weights of one site, all F32. hc = number of streams.
struct HcSite {
  tensor::View fn;  // [(2 + hc) * hc, hc * D]: rows pre[hc], post[hc], comb[hc][hc] (row j, column
                    // k at 2 hc + hc j + k)
  tensor::View base;   // [(2 + hc) * hc]
  tensor::View scale;  // [3]: pre, post, comb
};

// What the last sublayer left for the streams. out is [n, D]; empty before the first sublayer.
struct HcPending {
  tensor::View out;
  tensor::View post;  // [n, hc] F32
  tensor::View comb;  // [n, hc, hc] F32
};

struct HcConstants {
  float rms_eps = 0.0f;
  float hc_eps = 0.0f;
  int sinkhorn_iters = 0;
};

// 1. Unless pending.out is empty: streams[k] = post[k] * out + sum_j comb[j][k] * streams[j] (2.1;
// release: bf16)
// 2. (pre, post, comb) = mix(streams) (2.2, fp32)
// 3. y = rms_norm(sum_i pre[i] * streams[i]) * norm      (release: the sum is rounded to bf16, then
// y) post and comb are written where `pending` reads them (per row, after it was read). n = 0:
// nothing.
struct HcBoundaryArgs {
  tensor::View streams;  // in, out [n, hc, D]
  HcPending pending;     // post and comb are always set: out of step 2
  HcSite site;
  tensor::View norm;  // [D] F32
  HcConstants constants;
  tensor::View y;  // out [n, D]
};

// Step 1 alone: brings the streams up to date (taps, drafters, golden comparisons).
struct HcExpandArgs {
  tensor::View streams;  // in, out [n, hc, D]
  HcPending pending;
};

// y = rms_norm(sum_i p[i] * streams[i]) * norm with p = sigmoid(s * (fn . streams) * scale + base)
// + hc_eps (2.3), on streams that are up to date. Without `norm` the sum itself (release: bf16).
struct HcHeadArgs {
  tensor::View streams;  // [n, hc, D]
  tensor::View fn;       // [hc, hc * D] F32
  tensor::View base;     // [hc] F32
  tensor::View scale;    // [1] F32
  tensor::View norm;     // [D] F32, or empty
  HcConstants constants;
  tensor::View y;  // out [n, D]
};

// y[n][first + d] = sum_i streams[n][i][d] / hc, each term divided, in order of i: one target layer's part of a DSpark
// drafter's input (deepseek-v4.md 5.2). Release: bf16. n = 0: nothing.
struct StreamMeanArgs {
  tensor::View streams;    // [n, hc, D], up to date
  tensor::View y;          // out [n, W]: D columns of it
  std::int64_t first = 0;  // first + D <= W
};

// streams[n][i] = e[n] + h[n][i]: the MTP block's input (deepseek-v4.md 5.1). Release: bf16.
struct StreamAddArgs {
  tensor::View e;        // [n, D]
  tensor::View streams;  // in: h, out: the sum [n, hc, D]
};

}  // namespace nibble::ops
