// Any bytes as a *.safetensors file: refused with CheckpointError, or a header that keeps every
// promise of safetensors.h.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "nibble/status.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace nibble::checkpoint;
  const int fd = memfd_create("fuzz", MFD_CLOEXEC);
  if (fd < 0 || write(fd, data, size) != static_cast<ssize_t>(size)) std::abort();
  try {
    const File file(fd, "fuzz.safetensors");
    const SafetensorsHeader header = read_safetensors_header(file);
    std::int64_t covered = 0;
    for (const StoredTensor& tensor : header.tensors) {
      if (tensor.bytes != tensor.shape.elements() * nibble::tensor::dtype_bytes(tensor.dtype))
        std::abort();
      if (tensor.offset < 8 || tensor.offset + tensor.bytes > file.size()) std::abort();
      if (tensor.bytes > 0 && tensor.offset < covered) std::abort();
      covered = std::max(covered, tensor.offset + tensor.bytes);
      std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.bytes));
      file.read_at(tensor.offset, bytes);
    }
  } catch (const nibble::CheckpointError&) {
  }
  return 0;
}
