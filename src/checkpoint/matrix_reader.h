// The bytes of a matrix whose format is known, verified: the weight binder's half that reads.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/weight_format.h"
#include "quant/matrix_format.h"
#include "quant/scale_stats.h"

namespace nibble::checkpoint {

// Every part of a matrix that detect_format() accepted, brought to the format's own codes and
// scales. Throws CheckpointError naming tensor and element for NaN codes, NaN, infinite or (FP8, NVFP4)
// negative scales, one so large that a weight could leave fp32's range, a global scale that is not a
// positive number, a .weight_shape that says another shape, and columns that are not in the order of
// their groups (act-order).
quant::HostMatrix read_matrix(const Checkpoint& checkpoint, const WeightParts& parts,
                              const WeightFormat& format, std::int64_t rows, std::int64_t cols);

// The scales alone, and the small tensors beside them: what read_matrix() would refuse in them, each as a
// line.
struct ScaleScan {
  quant::ScaleStats stats;
  float global_scale = 1.0f;
  std::vector<std::string> problems;
};
ScaleScan scan_scales(const Checkpoint& checkpoint, const WeightParts& parts,
                      const WeightFormat& format, std::int64_t rows, std::int64_t cols);

// All elements of an F32, BF16 or F16 tensor as fp32; refuses infinities and NaNs.
void read_floats(const Checkpoint& checkpoint, const TensorSource& source, std::span<float> out);

// The integers of an I64 or I32 tensor.
void read_ints(const Checkpoint& checkpoint, const TensorSource& source,
               std::span<std::int64_t> out);

}  // namespace nibble::checkpoint
