// One *.safetensors file: 8 bytes of header length (little endian), a JSON header, then the
// tensors' bytes back to back.
//
//   {"__metadata__": {"key": "text", ...},
//    "NAME": {"dtype": "F8_E4M3", "shape": [1024, 4096], "data_offsets": [begin, end]}, ...}
//
// Offsets count from the first byte after the header. Everything is checked before any tensor is
// read, and a file that is anything but exactly this is refused: unknown dtype, size that disagrees
// with shape and dtype, overlap, hole, duplicate name, end beyond the file.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/folder.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace nibble::checkpoint {

inline constexpr std::int64_t kMaxHeaderBytes = 100'000'000;
// Per file and per index. The largest published checkpoints of this family have 150,000 tensors in all.
inline constexpr std::size_t kMaxTensors = 400'000;

struct StoredTensor {
  std::string name;
  tensor::DType dtype = tensor::DType::kF32;
  tensor::Shape shape;
  std::int64_t offset = 0;  // of its first byte, from the start of the file
  std::int64_t bytes = 0;   // shape.elements() x dtype_bytes(dtype)
};

struct SafetensorsHeader {
  std::vector<StoredTensor> tensors;  // in the order of their bytes
  std::vector<std::string> notes;     // what is odd but harmless, a line each
};

// Reads and checks the header. Memory is bounded by the header's own size. Throws CheckpointError
// naming file and tensor.
SafetensorsHeader read_safetensors_header(const File& file);

}  // namespace nibble::checkpoint
