#include "golden/golden_file.h"

#include "base/check.h"

namespace nibble::testing {

GoldenFile::GoldenFile(const std::string& file_name)
    : file_(checkpoint::Folder(NIBBLE_SOURCE_DIR "/tests/golden").open(file_name)) {
  for (const checkpoint::StoredTensor& tensor : checkpoint::read_safetensors_header(file_).tensors)
    tensors_[tensor.name] = tensor;
}

template <typename T>
std::vector<T> GoldenFile::read(const std::string& name, tensor::DType dtype) const {
  const checkpoint::StoredTensor& tensor = tensors_.at(name);
  NIBBLE_CHECK(tensor.dtype == dtype, "{} is {}", name, tensor::dtype_name(tensor.dtype));
  std::vector<T> values(static_cast<std::size_t>(tensor.shape.elements()));
  file_.read_at(tensor.offset, std::as_writable_bytes(std::span(values)));
  return values;
}

std::vector<float> GoldenFile::floats(const std::string& name) const {
  return read<float>(name, tensor::DType::kF32);
}

std::vector<std::int32_t> GoldenFile::ints(const std::string& name) const {
  return read<std::int32_t>(name, tensor::DType::kI32);
}

}  // namespace nibble::testing
