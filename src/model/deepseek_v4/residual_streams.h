// The hc residual streams of one step, entered and left once a sublayer (deepseek-v4.md 2.1).
#pragma once

#include "model/deepseek_v4/weights.h"

namespace nibble::model {

// What a sublayer leaves is not added at once: the next enter() does both in one op, since that
// boundary is what a GPU wants to be one kernel. settle() brings the streams up to date where
// somebody looks at them.
class ResidualStreams {
 public:
  // Buffers are borrowed: streams [n, hc, D], post [n, hc], comb [n, hc, hc], x [n, D].
  ResidualStreams(ops::Backend& backend, const ops::HcConstants& constants, tensor::View streams,
                  tensor::View post, tensor::View comb, tensor::View x)
      : backend_(backend),
        constants_(constants),
        streams_(streams),
        pending_{{}, post, comb},
        x_(x) {}

  // The sublayer's input: collapsed with the site's mix, normed [n, D]. Valid until the next
  // enter().
  const tensor::View& enter(const ops::HcSite& site, const tensor::View& norm) {
    backend_.hc_boundary({streams_, pending_, site, norm, constants_, x_});
    pending_.out = {};
    return x_;
  }

  // The sublayer's output [n, D], borrowed until the next enter() or settle().
  void leave(const tensor::View& out) { pending_.out = out; }

  const tensor::View& settle() {
    if (!pending_.out.empty()) backend_.hc_expand({streams_, pending_});
    pending_.out = {};
    return streams_;
  }

 private:
  ops::Backend& backend_;
  ops::HcConstants constants_;
  tensor::View streams_;
  ops::HcPending pending_;
  tensor::View x_;
};

}  // namespace nibble::model
