// The width a weight matrix has in memory, and a matrix of that width in host memory.
//
// A matrix is row-major [rows, cols] = [out, in], so y[rows] = W x[cols]. Bytes per format:
//   kF32           data: rows x cols floats
//   kBF16          data: rows x cols uint16
//   kFp8Block128   data: rows x cols E4M3 codes; scales: [ceil(rows/128), ceil(cols/128)] E8M0
//   bytes, one a 128x128 block kMxfp4         data: rows x cols/2 bytes, column 2j in the LOW
//   nibble of byte j; scales: [rows, cols/32] E8M0 bytes.
//                  cols is a multiple of 32
// Formulas: E4M3, E8M0 and E2M1 in the headers of those names; block layout in fp8_block.h and
// mxfp4.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <utility>

namespace nibble::quant {

enum class Format { kF32, kBF16, kFp8Block128, kMxfp4 };

// As the start-up table prints it: "F32", "BF16", "FP8 128x128 (E8M0)", "MXFP4".
const char* format_name(Format format);

// Bytes of one row of codes, of all codes, and of all scales (0 for kF32 and kBF16).
// kMxfp4 with cols not a multiple of 32, or a negative size, is a NIBBLE_CHECK failure.
std::int64_t row_bytes(Format format, std::int64_t cols);
std::int64_t data_bytes(Format format, std::int64_t rows, std::int64_t cols);
std::int64_t scale_bytes(Format format, std::int64_t rows, std::int64_t cols);

// Owned, uninitialised bytes that start on a 64-byte boundary (a cache line, an AVX-512 register)
// and are followed by 64 zero bytes, so a vector load at the very end stays inside. Move only; size
// 0 is legal and owns nothing.
class AlignedBytes {
 public:
  static constexpr std::size_t kAlignment = 64;
  static constexpr std::size_t kTailBytes = 64;

  AlignedBytes() = default;
  explicit AlignedBytes(std::size_t size) : size_(size) {
    if (size == 0) return;
    data_.reset(
        static_cast<std::byte*>(::operator new (size + kTailBytes, std::align_val_t{kAlignment})));
    std::memset(data_.get() + size, 0, kTailBytes);
  }
  AlignedBytes(AlignedBytes&& other) noexcept : data_(std::move(other.data_)), size_(other.size_) {
    other.size_ = 0;
  }
  AlignedBytes& operator=(AlignedBytes&& other) noexcept {
    data_ = std::move(other.data_);
    size_ = other.size_;
    other.size_ = 0;
    return *this;
  }

  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  std::size_t size() const { return size_; }
  std::span<std::byte> span() { return {data_.get(), size_}; }
  std::span<const std::byte> span() const { return {data_.get(), size_}; }

  // The bytes as T; T is a trivial type of at most 64-byte alignment.
  template <typename T>
  T* as() {
    return reinterpret_cast<T*>(data_.get());
  }
  template <typename T>
  const T* as() const {
    return reinterpret_cast<const T*>(data_.get());
  }

 private:
  struct Free {
    void operator()(std::byte* bytes) const {
      ::operator delete (bytes, std::align_val_t{kAlignment});
    }
  };
  std::unique_ptr<std::byte, Free> data_;
  std::size_t size_ = 0;
};

struct HostMatrix {
  Format format = Format::kF32;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  AlignedBytes data;    // data_bytes(format, rows, cols)
  AlignedBytes scales;  // scale_bytes(format, rows, cols); empty for kF32 and kBF16
};

// Uninitialised codes and scales of the right sizes.
HostMatrix make_host_matrix(Format format, std::int64_t rows, std::int64_t cols);

// out[cols] = row `row` of the matrix as fp32: the scalar specification every kernel is checked
// against.
void decode_row(const HostMatrix& matrix, std::int64_t row, std::span<float> out);

// values [rows, cols], row-major and finite, rounded to the format's grid: bf16 to nearest even,
// FP8 and MXFP4 with the smallest power-of-two scale that does not saturate. For converters and
// tests; loading a checkpoint never rounds.
HostMatrix encode_matrix(Format format, std::int64_t rows, std::int64_t cols,
                         std::span<const float> values);

}  // namespace nibble::quant
