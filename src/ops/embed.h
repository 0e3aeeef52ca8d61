// Token embedding into the residual streams (deepseek-v4.md 2.1, step 1).
#pragma once

#include <span>

#include "nibble/types.h"
#include "ops/matrix.h"
#include "tensor/view.h"

namespace nibble::ops {

// streams[n][i] = table[ids[n]] for every stream i. Ids are inside the table (checked by the
// scheduler). n = 0: nothing.
struct EmbedArgs {
  std::span<const TokenId> ids;  // [n]
  Matrix table;                  // [vocab, D]
  tensor::View streams;          // out [n, hc, D]; hc = 1 gives plain embeddings
};

}  // namespace nibble::ops
