// Any tensor name and shape through the spelling table: refused with CheckpointError, or slices
// that lie inside the tensor.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "checkpoint/tensor_names.h"
#include "nibble/status.h"

// The first three bytes are the dimensions, the rest is the name.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace nibble::checkpoint;
  if (size < 3) return 0;
  CheckpointTensor stored;
  stored.name.assign(reinterpret_cast<const char*>(data) + 3, size - 3);
  stored.shape = {data[0], data[1], data[2]};
  stored.bytes = 4 * stored.shape.elements();
  try {
    std::int64_t bytes = 0;
    for (const TensorSource& source : canonical_sources(stored, "fuzz")) {
      if (source.offset < 0 || source.offset + source.bytes > stored.bytes) std::abort();
      if (source.bytes != 4 * source.shape.elements()) std::abort();
      bytes += source.bytes;
    }
    if (bytes != stored.bytes) std::abort();
  } catch (const nibble::CheckpointError&) {
  }
  return 0;
}
