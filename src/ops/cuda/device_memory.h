// The memory of the CUDA backend.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace nibble::ops::cuda {

// Hands out device memory that lives as long as the arena: weights, caches, workspaces. Small pieces share blocks, since
// thousands of separate allocations cost seconds and pages. One thread at a time.
class DeviceArena {
 public:
  DeviceArena() = default;
  ~DeviceArena();
  DeviceArena(const DeviceArena&) = delete;
  DeviceArena& operator=(const DeviceArena&) = delete;

  // 256-byte aligned; not initialised. 0 bytes give a valid pointer of no use. Throws Error that says how much was asked
  // for and how much is free when the device has no room.
  std::byte* allocate(std::int64_t bytes);
  std::int64_t bytes() const { return bytes_; }  // taken from the device

 private:
  std::byte* new_block(std::int64_t bytes);

  std::vector<std::byte*> blocks_;
  std::byte* free_ = nullptr;  // rest of the newest shared block
  std::int64_t free_bytes_ = 0;
  std::int64_t bytes_ = 0;
};

// Device memory that grows to the largest size asked for; its contents do not survive growing.
class Scratch {
 public:
  // `moves` (may be null) outlives this and is counted up whenever the memory moves: for those who keep pointers into it.
  explicit Scratch(std::uint64_t* moves = nullptr) : moves_(moves) {}
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  template <typename T>
  T* get(std::int64_t count) {
    return static_cast<T*>(reserve(count * static_cast<std::int64_t>(sizeof(T))));
  }

 private:
  void* reserve(std::int64_t bytes);

  void* data_ = nullptr;
  std::int64_t bytes_ = 0;
  std::uint64_t* moves_;
};

}  // namespace nibble::ops::cuda
