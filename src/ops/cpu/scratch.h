// Buffers that grow to the largest step and stay: no allocation in the step loop.
#pragma once

#include <cstdint>

#include "tensor/buffer.h"

namespace nibble::ops::cpu {

template <typename T>
class Scratch {
 public:
  // At least `count` elements, 64-byte aligned, of no particular value; valid until the next call.
  T* get(std::int64_t count) {
    if (count > buffer_.size()) buffer_ = tensor::HostBuffer<T>(count + count / 2);
    return buffer_.data();
  }

 private:
  tensor::HostBuffer<T> buffer_;
};

}  // namespace nibble::ops::cpu
