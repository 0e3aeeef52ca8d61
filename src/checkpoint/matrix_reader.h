// Which format a stored matrix has, and its bytes. The weight binder's two halves that do not touch
// the ledger.
#pragma once

#include <span>
#include <string>

#include "checkpoint/checkpoint.h"
#include "checkpoint/tensor_names.h"
#include "quant/matrix_format.h"
#include "tensor/shape.h"

namespace nibble::checkpoint {

// "FOLDER/SHARD: tensor 'STORED' ('CANONICAL')".
std::string where(const Checkpoint& checkpoint, const TensorSource& source);

// Decides the format of a [rows, cols] matrix from its weight tensor alone. Throws CheckpointError
// when dtype or shape fit none.
quant::Format matrix_format(const Checkpoint& checkpoint, const TensorSource& weight,
                            std::int64_t rows, std::int64_t cols);

// Shape of the scale tensor that `format` needs; rank 0 when it needs none.
tensor::Shape scale_shape(quant::Format format, std::int64_t rows, std::int64_t cols);

// Throws CheckpointError unless the scale's dtype and shape are right for the format.
void check_scale(const Checkpoint& checkpoint, const TensorSource& scale, quant::Format format,
                 std::int64_t rows, std::int64_t cols);

// Bytes of a tensor that passed the checks above, verified and brought to the format's own codes.
void read_weight(const Checkpoint& checkpoint, const TensorSource& weight,
                 quant::HostMatrix& matrix);
void read_scale(const Checkpoint& checkpoint, const TensorSource& scale, quant::HostMatrix& matrix);

// All elements of an F32, BF16 or F16 tensor as fp32; refuses infinities and NaNs.
void read_floats(const Checkpoint& checkpoint, const TensorSource& source, std::span<float> out);

}  // namespace nibble::checkpoint
