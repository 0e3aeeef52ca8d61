#include "ops/op_name.h"

namespace nibble::ops {

const char* op_name(OpKind op) {
  switch (op) {
    case OpKind::kEmbed:
      return "embed";
    case OpKind::kNorm:
      return "rms_norm";
    case OpKind::kLinear:
      return "linear";
    case OpKind::kGroupedLinear:
      return "grouped_linear";
    case OpKind::kHyperConnection:
      return "hc_boundary";
    case OpKind::kAttention:
      return "sparse_attention";
    case OpKind::kIndexer:
      return "index_select";
    case OpKind::kCompressor:
      return "compress";
    case OpKind::kRouter:
      return "route";
    case OpKind::kExperts:
      return "routed_experts";
  }
  return "?";
}

}  // namespace nibble::ops
