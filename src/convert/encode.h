// Matrices into a target's format. A pure function of its arguments.
//
// Where the bits can move they do: a matrix that is in the format already stays as it is, MXFP4 and
// NVFP4 exchange codes and rewrite scales. Everything else goes through fp32, 128 rows at a time, and
// the rules that quant/'s headers name: MXFP4 2^ceil(log2(amax/6)), NVFP4 amax/(6 * 448) and
// amax/(6 * global), INT4 amax/7.5, FP8 the smallest power of two that does not saturate, bf16 to
// nearest even. FP8 by that rule is exact for MXFP4 whenever a 128x128 block spans at most 14
// exponents (quantization.md 3.3), because its scale is never larger than the 2^(k_max - 6) of the proof.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "convert/target.h"
#include "quant/matrix_format.h"

namespace nibble::convert {

// Where the encoder changed more than the form.
struct EncodeStats {
  std::int64_t moved_blocks = 0;        // codes kept as they were
  std::int64_t requantised_blocks = 0;  // rounded to the grid anew; perhaps without loss
  int span = 0;  // MXFP4 to NVFP4: of the exponents over the matrices together, zero blocks aside
};

struct Encoded {
  std::vector<quant::HostMatrix> matrices;  // in the order of the sources
  EncodeStats stats;                        // of all of them
};

// sources: one matrix, or for kNvfp4 the gate and the up projection of an expert, which share a
// global scale. Codes and scales are valid (they came from checkpoint::read_matrix); columns are a
// multiple of target_columns(). FP8 scales come out as F32 (target.h). Throws CheckpointError,
// beginning with names[i], when a value is too large for the target.
Encoded encode(Target target, std::span<const quant::HostMatrix* const> sources,
               std::span<const std::string> names);

// NVFP4 to MXFP4. A group of 32 whose two scales, times the global one, are one power of two (a half
// of zeros has no say) keeps its codes; others are requantised. quantization.md 3.2.
quant::HostMatrix nvfp4_to_mxfp4(const quant::HostMatrix& source, EncodeStats& stats);

// The same codes with scales of type F32: exact. FP8 only.
quant::HostMatrix with_f32_scales(const quant::HostMatrix& matrix);

}  // namespace nibble::convert
