// Writes one *.safetensors file (layout: checkpoint/safetensors.h). All tensors are known at the start,
// so each has its place before any byte is there, and several threads may fill them in any order.
//
// The header is written last, by finish(): until then the file begins with a header length of 0, and
// no reader takes it for a safetensors file.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace nibble::convert {

struct NewTensor {
  std::string name;
  tensor::DType dtype = tensor::DType::kF32;
  tensor::Shape shape;

  std::int64_t bytes() const { return shape.elements() * tensor::dtype_bytes(dtype); }
};

// The order of tensors in a file: the widest type first, else as given. Offsets then are multiples of
// each tensor's own element size, which readers that map the file need.
std::vector<std::size_t> aligned_order(const std::vector<NewTensor>& tensors);

// The first 8 bytes and the header, padded with spaces to a multiple of 8.
std::string safetensors_header(const std::vector<NewTensor>& tensors);

// Bytes of a file that holds these.
std::int64_t safetensors_bytes(const std::vector<NewTensor>& tensors);

class SafetensorsWriter {
 public:
  // Creates the file at its full size; `tensors` lie in it in this order. The path must not exist.
  // Throws Error(kFailed) naming the file when the system refuses (here and below).
  SafetensorsWriter(std::string path, std::vector<NewTensor> tensors);
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  // Bytes of tensor `index` from its byte `offset`. Callable from several threads at once.
  void write(std::size_t index, std::int64_t offset, std::span<const std::byte> bytes);

  // Every byte of every tensor has been written once (a checked invariant). Writes the header;
  // `durable`: waits until the file is on the disk.
  void finish(bool durable);

  const std::string& path() const { return path_; }
  const std::vector<NewTensor>& tensors() const { return tensors_; }

 private:
  std::string path_;
  std::vector<NewTensor> tensors_;
  std::string header_;
  std::vector<std::int64_t> offsets_;  // from the start of the file
  std::atomic<std::int64_t> written_{0};
  std::int64_t file_bytes_ = 0;
  int fd_ = -1;
};

}  // namespace nibble::convert
