// Reads the committed golden tensors.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "checkpoint/folder.h"
#include "checkpoint/safetensors.h"

namespace nibble::testing {

// One file of tests/golden; tensors are read when asked for. An unknown name throws
// std::out_of_range.
class GoldenFile {
 public:
  explicit GoldenFile(const std::string& file_name);

  bool has(const std::string& name) const { return tensors_.count(name) > 0; }
  const tensor::Shape& shape(const std::string& name) const { return tensors_.at(name).shape; }
  std::vector<float> floats(const std::string& name) const;
  std::vector<std::int32_t> ints(const std::string& name) const;

 private:
  template <typename T>
  std::vector<T> read(const std::string& name, tensor::DType dtype) const;

  checkpoint::File file_;
  std::map<std::string, checkpoint::StoredTensor> tensors_;
};

}  // namespace nibble::testing
