// Owned, 64-byte aligned host memory of one element type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>

#include "base/check.h"

namespace nibble::tensor {

inline constexpr std::size_t kBufferAlignment = 64;

// Zero-filled at allocation. Movable, not copyable. T is trivially copyable.
template <typename T>
class HostBuffer {
 public:
  HostBuffer() = default;
  explicit HostBuffer(std::int64_t count) : count_(count) {
    NIBBLE_CHECK(count >= 0, "count {}", count);
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T);
    data_.reset(static_cast<T*>(
        ::operator new (bytes + kBufferAlignment, std::align_val_t{kBufferAlignment})));
    std::memset(static_cast<void*>(data_.get()), 0, bytes + kBufferAlignment);
  }

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  std::int64_t size() const { return count_; }
  std::int64_t bytes() const { return count_ * static_cast<std::int64_t>(sizeof(T)); }
  std::span<T> span() { return {data(), static_cast<std::size_t>(count_)}; }
  std::span<const T> span() const { return {data(), static_cast<std::size_t>(count_)}; }
  T& operator[](std::int64_t i) { return data_.get()[i]; }
  const T& operator[](std::int64_t i) const { return data_.get()[i]; }

 private:
  struct Delete {
    void operator()(T* p) const {
      ::operator delete (static_cast<void*>(p), std::align_val_t{kBufferAlignment});
    }
  };
  std::unique_ptr<T, Delete> data_;
  std::int64_t count_ = 0;
};

}  // namespace nibble::tensor
