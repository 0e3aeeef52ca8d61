#include "convert/safetensors_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "convert/json_text.h"
#include "convert/output_file.h"

namespace nibble::convert {

std::vector<std::size_t> aligned_order(const std::vector<NewTensor>& tensors) {
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return tensor::dtype_bytes(tensors[a].dtype) > tensor::dtype_bytes(tensors[b].dtype);
  });
  return order;
}

std::string safetensors_header(const std::vector<NewTensor>& tensors) {
  std::string text = R"({"__metadata__":{"format":"pt"})";
  std::int64_t at = 0;
  for (const NewTensor& tensor : tensors) {
    std::string dims;
    for (int i = 0; i < tensor.shape.rank(); ++i)
      dims += fmt::format("{}{}", i == 0 ? "" : ",", tensor.shape[i]);
    text += fmt::format(R"(,{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                        json_string(tensor.name), tensor::dtype_name(tensor.dtype), dims, at,
                        at + tensor.bytes());
    at += tensor.bytes();
  }
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::uint64_t length = text.size();
  std::string header(sizeof(length), '\0');
  for (char& byte : header) {  // little endian
    byte = static_cast<char>(length & 0xFFu);
    length >>= 8;
  }
  return header + text;
}

std::int64_t safetensors_bytes(const std::vector<NewTensor>& tensors) {
  auto bytes = static_cast<std::int64_t>(safetensors_header(tensors).size());
  for (const NewTensor& tensor : tensors) bytes += tensor.bytes();
  return bytes;
}

SafetensorsWriter::SafetensorsWriter(std::string path, std::vector<NewTensor> tensors)
    : path_(std::move(path)), tensors_(std::move(tensors)), header_(safetensors_header(tensors_)) {
  file_bytes_ = static_cast<std::int64_t>(header_.size());
  for (const NewTensor& tensor : tensors_) {
    offsets_.push_back(file_bytes_);
    file_bytes_ += tensor.bytes();
  }
  fd_ = create_file(path_);
  try {
    reserve_bytes(fd_, file_bytes_, path_);  // finds a full disk early
  } catch (...) {
    close(fd_);
    throw;
  }
}

SafetensorsWriter::~SafetensorsWriter() {
  if (fd_ >= 0) close(fd_);
}

void SafetensorsWriter::write(std::size_t index, std::int64_t offset,
                              std::span<const std::byte> bytes) {
  const auto size = static_cast<std::int64_t>(bytes.size());
  NIBBLE_CHECK(index < tensors_.size() && offset >= 0 && offset + size <= tensors_[index].bytes(),
               "{}: bytes [{}, {}) of tensor {}", path_, offset, offset + size, index);
  write_at(fd_, offsets_[index] + offset, bytes, path_);
  written_ += size;
}

void SafetensorsWriter::finish(bool durable) {
  NIBBLE_CHECK(written_ + static_cast<std::int64_t>(header_.size()) == file_bytes_,
               "{}: {} of {} bytes written", path_, written_.load(), file_bytes_);
  write_at(fd_, 0, std::as_bytes(std::span(header_)), path_);
  close_file(std::exchange(fd_, -1), path_, durable);
}

}  // namespace nibble::convert
