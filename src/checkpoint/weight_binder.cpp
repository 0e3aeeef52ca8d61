#include "checkpoint/weight_binder.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "checkpoint/known_layouts.h"
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

}  // namespace

WeightBinder::WeightBinder(const Checkpoint& checkpoint, OnProblem on_problem)
    : checkpoint_(checkpoint), on_problem_(on_problem) {
  if (auto refused = refused_by_name(checkpoint)) problem(std::move(*refused));
  entries_.reserve(checkpoint.tensors().size());
  for (const CheckpointTensor& stored : checkpoint.tensors()) {
    try {
      for (TensorSource& source : canonical_sources(stored, checkpoint.where(stored)))
        entries_.push_back({std::move(source)});
    } catch (const CheckpointError& error) {
      problem(error.what());
    }
    if (entries_.size() > kMaxCanonicalTensors) {
      throw CheckpointError(fmt::format("{}: more than {} tensors", checkpoint.folder().path(),
                                        kMaxCanonicalTensors));
    }
  }
  std::sort(entries_.begin(), entries_.end(),
            [](const Entry& a, const Entry& b) { return a.source.name < b.source.name; });
  refuse_double_spellings();
}

void WeightBinder::problem(std::string text) {
  if (on_problem_ == OnProblem::kThrow) throw CheckpointError(text);
  problems_.push_back(std::move(text));
}

void WeightBinder::refuse_double_spellings() {
  for (std::size_t i = 1; i < entries_.size(); ++i) {
    const TensorSource& a = entries_[i - 1].source;
    const TensorSource& b = entries_[i].source;
    if (a.name != b.name) continue;
    problem(fmt::format("{}: the same weight as {}; expected one spelling of {}",
                        checkpoint_.where(*b.stored), checkpoint_.where(*a.stored), quote(b.name)));
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

WeightParts WeightBinder::take_parts(const std::string& name) {
  WeightParts parts;
  parts.weight = take(name + ".weight");
  parts.scale = take(name + ".scale");
  parts.global_scale = take(name + ".global_scale");
  parts.shape = take(name + ".weight_shape");
  parts.zero_point = take(name + ".weight_zero_point");
  parts.group_index = take(name + ".weight_g_idx");
  // Calibrated scales of 4-bit activations; here activations are never rounded to 4 bits.
  parts.input_scale = take(name + ".input_scale");
  if (parts.input_scale.stored != nullptr) ++unused_input_scales_;
  return parts;
}

MatrixSource WeightBinder::locate_matrix(std::string_view name, std::int64_t rows,
                                         std::int64_t cols) {
  MatrixSource matrix;
  matrix.name = name;
  matrix.rows = rows;
  matrix.cols = cols;
  matrix.parts = take_parts(matrix.name);
  const std::int64_t stand_in_bytes = bounded_bytes({rows, cols}, 2);
  if (!matrix.found()) {
    note_missing(matrix.name + ".weight", {rows, cols}, stand_in_bytes);
    return matrix;
  }
  try {
    matrix.format = detect_format(checkpoint_, matrix.parts, rows, cols);
  } catch (const CheckpointError& error) {
    problem(error.what());
    matrix.parts.weight.stored = nullptr;
    return matrix;
  }
  if (matrix.format.missing.empty()) return matrix;
  note_missing(matrix.name + matrix.format.missing, matrix.format.missing_shape, stand_in_bytes,
               " (beside " + where(checkpoint_, matrix.parts.weight) + ")");
  matrix.parts.weight.stored = nullptr;
  matrix.format = {};
  return matrix;
}

std::int64_t MatrixSource::bytes() const {
  std::int64_t total = 0;
  for (const TensorSource* part : {&parts.weight, &parts.scale, &parts.global_scale})
    if (part->stored != nullptr) total += part->bytes;
  return total;
}

HostMatrix WeightBinder::read(const MatrixSource& source) const {
  if (source.found())
    return read_matrix(checkpoint_, source.parts, source.format, source.rows, source.cols);
  HostMatrix zeros = quant::make_host_matrix(Format::kBF16, source.rows, source.cols);
  std::ranges::fill(zeros.data.span(), std::byte{0});
  return zeros;
}

HostMatrix WeightBinder::matrix(std::string_view name, std::int64_t rows, std::int64_t cols) {
  const MatrixSource source = locate_matrix(name, rows, cols);
  HostMatrix matrix = read(source);
  if (matrix.scales.size() > 0)
    scale_records_.push_back({source.name, matrix.format, quant::scale_stats(matrix)});
  return matrix;
}

std::pair<HostMatrix, HostMatrix> WeightBinder::gate_and_up(std::string_view gate,
                                                            std::string_view up, std::int64_t rows,
                                                            std::int64_t cols) {
  std::pair<HostMatrix, HostMatrix> pair{matrix(gate, rows, cols), matrix(up, rows, cols)};
  const float a = pair.first.global_scale, b = pair.second.global_scale;
  const bool nvfp4 = pair.first.format == Format::kNvfp4 && pair.second.format == Format::kNvfp4;
  if (!nvfp4 || a == b) return pair;
  const Entry* second = find(std::string(up) + ".global_scale");
  if (second->source.stored->name.ends_with(".weight_scale_2"))
    problem(
        fmt::format("{}: expected the global scale of {}, {}, which the two projections share, "
                    "found {}",
                    where(checkpoint_, second->source), quote(gate), a, b));
  if (unequal_global_scales_++ == 0) first_unequal_ = gate;
  return pair;
}

TensorSource WeightBinder::locate(std::string_view name, const Shape& shape, bool integers) {
  TensorSource source = take(name);
  if (source.stored == nullptr) {
    note_missing(name, shape, bounded_bytes(shape, integers ? 8 : 4));
    return source;
  }
  const DType dtype = source.stored->dtype;
  const bool fits = integers
                        ? dtype == DType::kI64 || dtype == DType::kI32
                        : dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
  if (fits && source.shape == shape) return source;
  problem(fmt::format("{}: expected {} {}, found {} {}{}", where(checkpoint_, source),
                      integers ? "I64 or I32" : "F32, BF16 or F16", shape.to_string(),
                      tensor::dtype_name(dtype), source.shape.to_string(),
                      shape_hint(source.shape, shape)));
  source.stored = nullptr;
  return source;
}

std::vector<float> WeightBinder::vector_f32(std::string_view name, const Shape& shape) {
  const TensorSource source = locate(name, shape);
  std::vector<float> values(static_cast<std::size_t>(shape.elements()), 0.0f);
  if (source.stored != nullptr) read_floats(checkpoint_, source, values);
  return values;
}

std::vector<std::int64_t> WeightBinder::ints(std::string_view name, const Shape& shape,
                                             std::int64_t lowest, std::int64_t highest) {
  const TensorSource source = locate(name, shape, true);
  std::vector<std::int64_t> values(static_cast<std::size_t>(shape.elements()), 0);
  if (source.stored == nullptr) return values;
  read_ints(checkpoint_, source, values);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] >= lowest && values[i] <= highest) continue;
    throw CheckpointError(fmt::format("{}: expected integers from {} to {}, found {} at element {}",
                                      where(checkpoint_, source), lowest, highest, values[i], i));
  }
  return values;
}

bool WeightBinder::same_bytes(std::string_view a, std::string_view b) const {
  const Entry *first = find(a), *second = find(b);
  if (first == nullptr || second == nullptr) return false;
  const TensorSource &x = first->source, &y = second->source;
  if (x.stored->dtype != y.stored->dtype || x.shape != y.shape) return false;
  constexpr std::int64_t kChunk = 4 << 20;
  std::vector<std::byte> left, right;
  for (std::int64_t at = 0; at < x.bytes; at += kChunk) {
    const auto size = static_cast<std::size_t>(std::min(kChunk, x.bytes - at));
    left.resize(size);
    right.resize(size);
    checkpoint_.read(*x.stored, x.offset + at, left);
    checkpoint_.read(*y.stored, y.offset + at, right);
    if (left != right) return false;
  }
  return true;
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
  if (on_problem_ == OnProblem::kCollect) return;
  const bool affordable = stand_in_bytes <= kMaxStandInBytes - stand_in_bytes_;
  if (missing_.size() < kNamesInAMessage && affordable) {
    stand_in_bytes_ += stand_in_bytes;
    return;
  }
  throw CheckpointError(missing_message() + " (the search ended here)");
}

std::string WeightBinder::missing_message() const {
  std::string names;
  for (std::size_t i = 0; i < std::min(missing_.size(), kNamesInAMessage); ++i)
    names += (names.empty() ? "" : ", ") + missing_[i];
  return fmt::format("{}: {} expected tensors are missing: {}{}", checkpoint_.folder().path(),
                     missing_.size(), names, missing_.size() > kNamesInAMessage ? ", ..." : "");
}

std::string WeightBinder::left_over_message() const {
  std::string names;
  std::size_t count = 0;
  for (const Entry& entry : entries_) {
    if (entry.use != Use::kNone) continue;
    if (count++ >= kNamesInAMessage) continue;
    names += (names.empty() ? "" : ", ") + quote(entry.source.stored->name);
    names +=
        " in " + checkpoint_.shards()[static_cast<std::size_t>(entry.source.stored->shard)].path();
  }
  if (count == 0) return {};
  return fmt::format("{} tensors in the files belong to no weight of this model: {}{}", count,
                     names, count > kNamesInAMessage ? ", ..." : "");
}

std::vector<std::string> WeightBinder::scale_lines() const {
  std::vector<std::string> lines;
  for (const Format format : quant::kFormats) {
    quant::ScaleStats all;
    std::int64_t tensors = 0;
    const ScaleRecord* widest = nullptr;
    for (const ScaleRecord& record : scale_records_) {
      if (record.format != format || !record.stats.max_exponent) continue;
      ++tensors;
      all.add(record.stats);
      if (widest == nullptr || record.stats.span() > widest->stats.span()) widest = &record;
    }
    if (widest == nullptr) continue;
    lines.push_back(fmt::format(
        "{}: scales of {} matrices from 2^{} to 2^{}; the widest span in one is {} ({}){}",
        quant::format_name(format), tensors, *all.min_exponent, *all.max_exponent,
        widest->stats.span(), quote(widest->name),
        format == Format::kNvfp4 && all.powers_of_two ? "; all are powers of two" : ""));
  }
  return lines;
}

void WeightBinder::finish() {
  if (unused_input_scales_ > 0)
    notes_.push_back(
        fmt::format("*.input_scale: {} tensors not used: activations are not rounded to 4 bits",
                    unused_input_scales_));
  if (unequal_global_scales_ > 0)
    notes_.push_back(fmt::format(
        "{} pairs of gate and up projections have different global scales ({} first); each keeps "
        "its own",
        unequal_global_scales_, quote(first_unequal_)));
  const std::string left_over = left_over_message();
  if (on_problem_ == OnProblem::kCollect) {
    if (!missing_.empty()) problems_.push_back(missing_message());
    if (!left_over.empty()) problems_.push_back(checkpoint_.folder().path() + ": " + left_over);
    return;
  }
  if (missing_.empty() && left_over.empty()) return;
  if (missing_.empty()) throw CheckpointError(checkpoint_.folder().path() + ": " + left_over);
  throw CheckpointError(missing_message() + (left_over.empty() ? "" : "; " + left_over));
}

}  // namespace nibble::checkpoint
