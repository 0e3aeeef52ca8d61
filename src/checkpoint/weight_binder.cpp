#include "checkpoint/weight_binder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "checkpoint/matrix_reader.h"
#include "checkpoint/quote.h"
#include "nibble/status.h"

namespace nibble::checkpoint {
namespace {

using quant::Format;
using quant::HostMatrix;
using tensor::DType;
using tensor::Shape;

constexpr std::size_t kNamesInAMessage = 8;
constexpr std::size_t kMaxCanonicalTensors = 4'000'000;
constexpr std::int64_t kMaxStandInBytes = std::int64_t{64} << 20;

// elements x bytes_each, or more than any limit when that overflows.
std::int64_t bounded_bytes(const Shape& shape, std::int64_t bytes_each) {
  std::int64_t bytes = bytes_each;
  for (int i = 0; i < shape.rank(); ++i) {
    if (__builtin_mul_overflow(bytes, shape[i], &bytes)) return kMaxStandInBytes + 1;
  }
  return bytes;
}

void check_shape(const Checkpoint& checkpoint, const TensorSource& source, const Shape& shape,
                 bool dtype_fits, std::string_view dtypes) {
  if (dtype_fits && source.shape == shape) return;
  throw CheckpointError(fmt::format(
      "{}: expected {} {}, found {} {}", where(checkpoint, source), dtypes, shape.to_string(),
      tensor::dtype_name(source.stored->dtype), source.shape.to_string()));
}

}  // namespace

WeightBinder::WeightBinder(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {
  entries_.reserve(checkpoint.tensors().size());
  for (const CheckpointTensor& stored : checkpoint.tensors()) {
    for (TensorSource& source : canonical_sources(stored, checkpoint.where(stored))) {
      entries_.push_back({std::move(source)});
    }
    if (entries_.size() > kMaxCanonicalTensors) {
      throw CheckpointError(fmt::format("{}: more than {} tensors", checkpoint.folder().path(),
                                        kMaxCanonicalTensors));
    }
  }
  std::sort(entries_.begin(), entries_.end(),
            [](const Entry& a, const Entry& b) { return a.source.name < b.source.name; });
  for (std::size_t i = 1; i < entries_.size(); ++i) {
    const TensorSource& a = entries_[i - 1].source;
    const TensorSource& b = entries_[i].source;
    if (a.name != b.name) continue;
    throw CheckpointError(fmt::format("{}: the same weight as {}; expected one spelling of {}",
                                      checkpoint.where(*b.stored), checkpoint.where(*a.stored),
                                      quote(b.name)));
  }
}

std::vector<WeightBinder::Entry>::const_iterator WeightBinder::first_not_below(
    std::string_view name) const {
  return std::lower_bound(
      entries_.begin(), entries_.end(), name,
      [](const Entry& entry, std::string_view wanted) { return entry.source.name < wanted; });
}

const WeightBinder::Entry* WeightBinder::find(std::string_view name) const {
  const auto found = first_not_below(name);
  return found != entries_.end() && found->source.name == name ? &*found : nullptr;
}

TensorSource WeightBinder::take(std::string_view name) {
  const Entry* found = find(name);
  if (found == nullptr) return {};
  NIBBLE_CHECK(found->use == Use::kNone,
               "{} asked for a second time, or after it was declared unused", name);
  Entry& entry = entries_[static_cast<std::size_t>(found - entries_.data())];
  entry.use = Use::kUsed;
  return entry.source;
}

void WeightBinder::refuse_other_formats(const std::string& name) const {
  struct Mark {
    const char* suffix;
    const char* format;
  };
  for (const Mark mark : {Mark{".weight_packed", "a compressed-tensors packed weight"},
                          Mark{".weight_scale_2", "NVFP4"}}) {
    if (const Entry* entry = find(name + mark.suffix)) {
      throw CheckpointError(fmt::format(
          "{}: expected MXFP4, FP8, BF16 or F32 for {}, found {}, which is not supported",
          where(checkpoint_, entry->source), quote(name), mark.format));
    }
  }
}

MatrixSource WeightBinder::locate_matrix(std::string_view name, std::int64_t rows,
                                         std::int64_t cols) {
  MatrixSource matrix;
  matrix.name = name;
  matrix.rows = rows;
  matrix.cols = cols;
  refuse_other_formats(matrix.name);
  const std::string weight_name = matrix.name + ".weight";
  const std::string scale_name = matrix.name + ".scale";
  matrix.weight = take(weight_name);
  TensorSource scale = take(scale_name);
  const std::int64_t stand_in_bytes = bounded_bytes({rows, cols}, 2);
  if (matrix.weight.stored == nullptr) {
    note_missing(weight_name, {rows, cols}, stand_in_bytes);
    return matrix;
  }
  matrix.format = matrix_format(checkpoint_, matrix.weight, rows, cols);
  const Shape expected_scale = scale_shape(matrix.format, rows, cols);
  if (expected_scale.rank() == 0) {
    if (scale.stored == nullptr) return matrix;
    throw CheckpointError(
        fmt::format("{}: expected no scale beside a {} weight, found {} {}",
                    where(checkpoint_, scale), tensor::dtype_name(matrix.weight.stored->dtype),
                    tensor::dtype_name(scale.stored->dtype), scale.shape.to_string()));
  }
  if (scale.stored == nullptr) {
    note_missing(scale_name, expected_scale, stand_in_bytes,
                 " (beside " + where(checkpoint_, matrix.weight) + ")");
    matrix.weight.stored = nullptr;
    matrix.format = Format::kBF16;
    return matrix;
  }
  check_scale(checkpoint_, scale, matrix.format, rows, cols);
  matrix.scale = std::move(scale);
  return matrix;
}

HostMatrix WeightBinder::read(const MatrixSource& source) const {
  HostMatrix matrix = quant::make_host_matrix(source.format, source.rows, source.cols);
  if (source.weight.stored == nullptr) {
    std::ranges::fill(matrix.data.span(), std::byte{0});
    return matrix;
  }
  read_weight(checkpoint_, source.weight, matrix);
  if (source.scale.stored != nullptr) read_scale(checkpoint_, source.scale, matrix);
  return matrix;
}

std::vector<float> WeightBinder::vector_f32(std::string_view name, const Shape& shape) {
  const TensorSource source = take(name);
  if (source.stored == nullptr) {
    note_missing(name, shape, bounded_bytes(shape, sizeof(float)));
    return std::vector<float>(static_cast<std::size_t>(shape.elements()), 0.0f);
  }
  const DType dtype = source.stored->dtype;
  check_shape(checkpoint_, source, shape,
              dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16,
              "F32, BF16 or F16");
  std::vector<float> values(static_cast<std::size_t>(shape.elements()));
  read_floats(checkpoint_, source, values);
  return values;
}

std::vector<std::int64_t> WeightBinder::ints(std::string_view name, const Shape& shape,
                                             std::int64_t lowest, std::int64_t highest) {
  const TensorSource source = take(name);
  if (source.stored == nullptr) {
    note_missing(name, shape, bounded_bytes(shape, sizeof(std::int64_t)));
    return std::vector<std::int64_t>(static_cast<std::size_t>(shape.elements()), 0);
  }
  const DType dtype = source.stored->dtype;
  check_shape(checkpoint_, source, shape, dtype == DType::kI64 || dtype == DType::kI32,
              "I64 or I32");
  std::vector<std::int64_t> values(static_cast<std::size_t>(shape.elements()));
  if (dtype == DType::kI64) {
    checkpoint_.read(*source.stored, source.offset, std::as_writable_bytes(std::span(values)));
  } else {
    std::vector<std::int32_t> narrow(values.size());
    checkpoint_.read(*source.stored, source.offset, std::as_writable_bytes(std::span(narrow)));
    std::copy(narrow.begin(), narrow.end(), values.begin());
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] >= lowest && values[i] <= highest) continue;
    throw CheckpointError(fmt::format("{}: expected integers from {} to {}, found {} at element {}",
                                      where(checkpoint_, source), lowest, highest, values[i], i));
  }
  return values;
}

bool WeightBinder::has(std::string_view prefix) const {
  const auto first = first_not_below(prefix);
  return first != entries_.end() && first->source.name.starts_with(prefix);
}

void WeightBinder::declare_unused(std::string_view prefix, std::string_view reason) {
  std::size_t count = 0;
  for (auto i = static_cast<std::size_t>(first_not_below(prefix) - entries_.begin());
       i < entries_.size() && entries_[i].source.name.starts_with(prefix); ++i) {
    if (entries_[i].use != Use::kNone) continue;
    entries_[i].use = Use::kUnused;
    ++count;
  }
  if (count > 0)
    notes_.push_back(fmt::format("{}*: {} tensors not used: {}", prefix, count, reason));
}

void WeightBinder::note_missing(std::string_view name, const Shape& shape,
                                std::int64_t stand_in_bytes, std::string_view remark) {
  missing_.push_back(fmt::format("{} {}{}", quote(name), shape.to_string(), remark));
  const bool affordable = stand_in_bytes <= kMaxStandInBytes - stand_in_bytes_;
  if (missing_.size() < kNamesInAMessage && affordable) {
    stand_in_bytes_ += stand_in_bytes;
    return;
  }
  throw CheckpointError(missing_message() + " (the search ended here)");
}

std::string WeightBinder::missing_message() const {
  std::string names;
  for (const std::string& name : missing_) names += (names.empty() ? "" : ", ") + name;
  return fmt::format("{}: {} expected tensors are missing: {}", checkpoint_.folder().path(),
                     missing_.size(), names);
}

void WeightBinder::finish() const {
  std::string left_over;
  std::size_t count = 0;
  for (const Entry& entry : entries_) {
    if (entry.use != Use::kNone) continue;
    if (count++ >= kNamesInAMessage) continue;
    left_over += (left_over.empty() ? "" : ", ") + quote(entry.source.stored->name);
    left_over +=
        " in " + checkpoint_.shards()[static_cast<std::size_t>(entry.source.stored->shard)].path();
  }
  if (missing_.empty() && count == 0) return;
  std::string message = missing_.empty() ? checkpoint_.folder().path() : missing_message();
  if (count > 0) {
    message += fmt::format("{} {} tensors in the files belong to no weight of this model: {}{}",
                           missing_.empty() ? ":" : ";", count, left_over,
                           count > kNamesInAMessage ? ", ..." : "");
  }
  throw CheckpointError(message);
}

}  // namespace nibble::checkpoint
