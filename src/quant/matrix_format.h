// The width a weight matrix has in memory, and a matrix of that width in host memory.
//
// A matrix is row-major [rows, cols] = [out, in], so y[rows] = W x[cols]. Bytes per format:
//   kF32           data: rows x cols floats
//   kBF16          data: rows x cols uint16
//   kFp8Block128   data: rows x cols E4M3 codes; scales: [ceil(rows/128), ceil(cols/128)]
//   kFp8Block32    the same with blocks of 32 x 32
//   kMxfp4         data: rows x cols/2 bytes, column 2j in the LOW nibble of byte j; scales:
//                  [rows, cols/32]; cols is a multiple of 32
//   kNvfp4         data as kMxfp4; scales: [rows, cols/16]; one fp32 `global_scale`; cols is a
//                  multiple of 16
//   kInt4G32       data: rows x cols/2 bytes of codes q + 8, nibbles as kMxfp4; scales: [rows,
//                  cols/32]; cols is a multiple of 32
//   kInt4G128      the same with groups of 128 columns
// Scales have one of the types that allows_scale_dtype() names, as published.
// Formulas: E4M3, E8M0 and E2M1 in the headers of those names; block layouts in fp8_block.h, mxfp4.h,
// nvfp4.h and int4.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <utility>

#include "tensor/dtype.h"

namespace nibble::quant {

enum class Format { kF32, kBF16, kFp8Block128, kFp8Block32, kMxfp4, kNvfp4, kInt4G32, kInt4G128 };

inline constexpr std::array kFormats = {Format::kF32,        Format::kBF16,    Format::kFp8Block128,
                                        Format::kFp8Block32, Format::kMxfp4,   Format::kNvfp4,
                                        Format::kInt4G32,    Format::kInt4G128};

// What a format's arithmetic consists of.
struct FormatTraits {
  const char* name;           // with the usual scales, as the start-up table prints it
  std::int64_t bits;          // of a code
  std::int64_t block_rows;    // rows and columns that share a scale; 0: no scales
  std::int64_t block_cols;    // (cols must be a multiple of it unless the codes are 8 bits wide)
  tensor::DType scale_dtype;  // the usual one; meaningless without scales
  bool fp8_activations;       // release numerics round this matrix's inputs to FP8 per 128
                              // channels (deepseek-v4.md 6.2); the others take them in bf16
};
const FormatTraits& traits(Format format);

// "F32", "BF16", "FP8 128x128 (E8M0)", "FP8 32x32 (E8M0)", "MXFP4", "NVFP4", "INT4 g32", "INT4 g128".
const char* format_name(Format format);
// The same for other than the usual scales: "FP8 128x128 (F32)", "INT4 g128 (F16)".
std::string format_name(Format format, tensor::DType scale_dtype);

// FP8: E8M0, F32, BF16. MXFP4: E8M0. NVFP4: E4M3. INT4: BF16, F16, F32. F32 and BF16: none, so false.
bool allows_scale_dtype(Format format, tensor::DType scale_dtype);

// Bytes of one row of codes, of all codes, and of all scales (0 for kF32 and kBF16); number of
// scales. cols that do not divide into whole groups, a negative size, or a scale type that the
// format does not have are NIBBLE_CHECK failures.
std::int64_t row_bytes(Format format, std::int64_t cols);
std::int64_t data_bytes(Format format, std::int64_t rows, std::int64_t cols);
std::int64_t scale_count(Format format, std::int64_t rows, std::int64_t cols);
std::int64_t scale_bytes(Format format, std::int64_t rows, std::int64_t cols,
                         tensor::DType scale_dtype);
std::int64_t scale_bytes(Format format, std::int64_t rows, std::int64_t cols);  // the usual type

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

// A matrix whose bytes lie somewhere on the host.
struct MatrixView {
  Format format = Format::kF32;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  tensor::DType scale_dtype = tensor::DType::kF8E8M0;
  float global_scale = 1.0f;          // kNvfp4: a multiplier; 1 for the others
  const std::byte* data = nullptr;    // data_bytes(format, rows, cols)
  const std::byte* scales = nullptr;  // scale_bytes(...); null for kF32 and kBF16
};

struct HostMatrix {
  Format format = Format::kF32;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  AlignedBytes data;    // data_bytes(format, rows, cols)
  AlignedBytes scales;  // scale_bytes(format, rows, cols, scale_dtype); empty for kF32 and kBF16
  tensor::DType scale_dtype = tensor::DType::kF8E8M0;
  float global_scale = 1.0f;

  MatrixView view() const {
    return {format, rows, cols, scale_dtype, global_scale, data.data(), scales.data()};
  }
};

// Uninitialised codes and scales of the right sizes; global scale 1.
HostMatrix make_host_matrix(Format format, std::int64_t rows, std::int64_t cols);
HostMatrix make_host_matrix(Format format, std::int64_t rows, std::int64_t cols,
                            tensor::DType scale_dtype);

// out[cols] = row `row` of the matrix as fp32: the scalar specification every kernel is checked
// against.
void decode_row(const MatrixView& matrix, std::int64_t row, std::span<float> out);
void decode_row(const HostMatrix& matrix, std::int64_t row, std::span<float> out);

// values [rows, cols], row-major and finite, rounded to the format's grid with the rules that the
// formats' headers name: bf16 to nearest even, FP8 and MXFP4 with the smallest power-of-two scale
// that does not saturate (FP8 with other scales: amax / 448), NVFP4 as ModelOpt, INT4 as
// compressed-tensors. For converters and tests; loading a checkpoint never rounds.
HostMatrix encode_matrix(Format format, std::int64_t rows, std::int64_t cols,
                         std::span<const float> values);
HostMatrix encode_matrix(Format format, std::int64_t rows, std::int64_t cols,
                         std::span<const float> values, tensor::DType scale_dtype);
// kNvfp4 with a global scale that other matrices share.
HostMatrix encode_nvfp4(std::int64_t rows, std::int64_t cols, std::span<const float> values,
                        float global_scale);

}  // namespace nibble::quant
