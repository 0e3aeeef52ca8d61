#include "convert/job_worker.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <span>

#include "base/check.h"
#include "checkpoint/code_scan.h"
#include "checkpoint/matrix_reader.h"
#include "convert/encode.h"
#include "nibble/status.h"

namespace nibble::convert {
namespace {

using checkpoint::TensorSource;
using quant::Format;
using quant::HostMatrix;
using tensor::DType;

constexpr std::int64_t kChunkBytes = 4 << 20;  // a multiple of every element's size
constexpr std::int64_t kSliceRows = 128;

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

[[noreturn]] void refuse(const checkpoint::Checkpoint& checkpoint, const TensorSource& source,
                         const std::string& expected, const std::string& found) {
  throw CheckpointError(
      fmt::format("{}: expected {}, found {}", where(checkpoint, source), expected, found));
}

std::optional<std::int64_t> find_nonfinite(DType dtype, std::span<const std::byte> bytes) {
  switch (dtype) {
    case DType::kF32:
      return checkpoint::find_nonfinite_f32(bytes);
    case DType::kBF16:
      return checkpoint::find_nonfinite_bf16(bytes);
    case DType::kF16:
      return checkpoint::find_nonfinite_f16(bytes);
    default:
      return std::nullopt;
  }
}

struct BadInteger {
  std::int64_t element, value;
};
std::optional<BadInteger> find_outside(DType dtype, std::span<const std::byte> bytes,
                                       std::int64_t highest) {
  const auto width = static_cast<std::size_t>(tensor::dtype_bytes(dtype));
  for (std::size_t at = 0; at < bytes.size(); at += width) {
    std::int64_t value = 0;
    std::int32_t narrow = 0;
    if (dtype == DType::kI64) {
      std::memcpy(&value, bytes.data() + at, width);
    } else {
      std::memcpy(&narrow, bytes.data() + at, width);
      value = narrow;
    }
    if (value < 0 || value > highest)
      return BadInteger{static_cast<std::int64_t>(at / width), value};
  }
  return std::nullopt;
}

}  // namespace

JobWorker::JobWorker(const checkpoint::Checkpoint& checkpoint, const Plan& plan)
    : checkpoint_(checkpoint), plan_(plan), reports_(plan.matrices.size()) {}

void JobWorker::run(const Job& job, SafetensorsWriter& writer) {
  if (job.tensor) return copy(job.tensor->source, &*job.tensor, job.tensor->slot.tensor, writer);
  const MatrixJob::Member& first = job.matrix->members[0];
  if (!planned(first).converted) return keep(first, writer);
  if (plan_.target == Target::kBf16 && planned(first).plain()) return round_rows(first, writer);
  encode_members(*job.matrix, writer);
}

std::vector<MatrixReport> JobWorker::reports() const {
  std::vector<MatrixReport> out;
  for (const MatrixReport& report : reports_)
    if (!report.name.empty()) out.push_back(report);
  return out;
}

void JobWorker::copy(const TensorSource& source, const TensorJob* checks, std::size_t tensor,
                     SafetensorsWriter& writer) const {
  const DType dtype = source.stored->dtype;
  std::vector<std::byte> chunk;
  for (std::int64_t at = 0; at < source.bytes; at += kChunkBytes) {
    chunk.resize(static_cast<std::size_t>(std::min(kChunkBytes, source.bytes - at)));
    checkpoint_.read(*source.stored, source.offset + at, chunk);
    const std::int64_t first = at / tensor::dtype_bytes(dtype);
    if (checks != nullptr && checks->check)
      if (const auto bad = find_nonfinite(dtype, chunk))
        refuse(checkpoint_, source, "finite values",
               fmt::format("an infinity or NaN at element {}", first + *bad));
    if (checks != nullptr && checks->highest)
      if (const auto bad = find_outside(dtype, chunk, *checks->highest))
        refuse(checkpoint_, source, fmt::format("integers from 0 to {}", *checks->highest),
               fmt::format("{} at element {}", bad->value, first + bad->element));
    writer.write(tensor, at, chunk);
  }
}

// Read as a matrix for the checks, then copied part by part.
void JobWorker::keep(const MatrixJob::Member& member, SafetensorsWriter& writer) const {
  const PlannedMatrix& m = planned(member);
  const checkpoint::WeightParts& parts = m.source.parts;
  const HostMatrix matrix =
      read_matrix(checkpoint_, parts, m.source.format, m.source.rows, m.source.cols);
  for (const MatrixJob::Output& output : member.outputs) {
    const NewTensor& made = writer.tensors()[output.slot.tensor];
    if (output.part == Part::kScales && made.dtype == DType::kF32) {
      writer.write(output.slot.tensor, 0, with_f32_scales(matrix).scales.span());
      continue;
    }
    const std::array<const TensorSource*, 6> sources = {&parts.weight,       &parts.scale,
                                                        &parts.global_scale, &parts.input_scale,
                                                        &parts.shape,        &parts.group_index};
    copy(*sources[static_cast<std::size_t>(output.part)], nullptr, output.slot.tensor, writer);
  }
}

void JobWorker::encode_members(const MatrixJob& job, SafetensorsWriter& writer) {
  std::vector<HostMatrix> sources;
  std::vector<std::string> names;
  for (const MatrixJob::Member& member : job.members) {
    const checkpoint::MatrixSource& s = planned(member).source;
    sources.push_back(read_matrix(checkpoint_, s.parts, s.format, s.rows, s.cols));
    names.push_back(where(checkpoint_, s.parts.weight));
  }
  check_shared_scale(job, sources);
  std::vector<const HostMatrix*> pointers(sources.size());
  std::ranges::transform(sources, pointers.begin(), [](const HostMatrix& m) { return &m; });
  const Encoded encoded = encode(plan_.target, pointers, names);
  for (std::size_t i = 0; i < job.members.size(); ++i) {
    const MatrixJob::Member& member = job.members[i];
    if (member.outputs.empty()) continue;
    const PlannedMatrix& m = planned(member);
    const HostMatrix& made = encoded.matrices[i];
    reports_[static_cast<std::size_t>(member.matrix)] = {
        m.source.name,
        m.kind,
        quant::format_name(m.source.format.format, m.source.format.scale_dtype),
        quant::format_name(made.format, made.scale_dtype),
        encoded.stats,
        compare(sources[i], made)};
    write(made, m, member, writer);
  }
}

// A matrix without scales to bf16, rows by rows: the embedding is the largest tensor there is.
void JobWorker::round_rows(const MatrixJob::Member& member, SafetensorsWriter& writer) {
  const PlannedMatrix& m = planned(member);
  const TensorSource& weight = m.source.parts.weight;
  const std::size_t tensor = member.outputs[0].slot.tensor;
  const std::int64_t row_bytes = m.source.cols * tensor::dtype_bytes(weight.stored->dtype);
  const std::vector<std::string> names = {where(checkpoint_, weight)};
  MatrixReport report{m.source.name,
                      m.kind,
                      quant::format_name(m.source.format.format),
                      quant::format_name(Format::kBF16),
                      {},
                      {}};
  for (std::int64_t begin = 0; begin < m.source.rows; begin += kSliceRows) {
    const std::int64_t rows = std::min(kSliceRows, m.source.rows - begin);
    checkpoint::WeightParts parts;
    parts.weight = weight;
    parts.weight.offset += begin * row_bytes;
    parts.weight.bytes = rows * row_bytes;
    parts.weight.shape = {rows, m.source.cols};
    HostMatrix source;
    try {
      source = read_matrix(checkpoint_, parts, m.source.format, rows, m.source.cols);
    } catch (const CheckpointError& error) {
      if (begin == 0) throw;
      throw CheckpointError(fmt::format("{} (rows counted from row {})", error.what(), begin));
    }
    const std::array<const HostMatrix*, 1> one = {&source};
    const Encoded made = encode(plan_.target, one, names);
    MatrixError error = compare(source, made.matrices[0]);
    error.worst_row += begin;
    report.error.add(error);
    report.stats.requantised_blocks += made.stats.requantised_blocks;
    writer.write(tensor, begin * m.source.cols * 2, made.matrices[0].data.span());
  }
  reports_[static_cast<std::size_t>(member.matrix)] = std::move(report);
}

// ModelOpt's files share one global scale between gate and up projection; the loader insists, and so
// do we.
void JobWorker::check_shared_scale(const MatrixJob& job,
                                   const std::vector<HostMatrix>& sources) const {
  for (std::size_t i = 1; i < sources.size(); ++i) {
    const checkpoint::MatrixSource& s = planned(job.members[i]).source;
    if (sources[i].format != Format::kNvfp4 || sources[0].format != Format::kNvfp4 ||
        s.format.reciprocal_global || sources[i].global_scale == sources[0].global_scale)
      continue;
    refuse(checkpoint_, s.parts.global_scale,
           fmt::format("the global scale of '{}', {}, which the two projections share",
                       planned(job.members[0]).source.name, sources[0].global_scale),
           fmt::format("{}", sources[i].global_scale));
  }
}

// A calibrated one stays; else 1, which means that activations are scaled as they come.
float JobWorker::input_scale(const PlannedMatrix& matrix) const {
  const TensorSource& source = matrix.source.parts.input_scale;
  if (source.stored == nullptr || source.stored->dtype != DType::kF32 || source.bytes != 4)
    return 1.0f;
  float value = 0.0f;
  checkpoint_.read(*source.stored, source.offset, std::as_writable_bytes(std::span(&value, 1)));
  if (matrix.source.format.reciprocal_global) value = 1.0f / value;
  return std::isfinite(value) && value > 0.0f ? value : 1.0f;
}

void JobWorker::write(const HostMatrix& made, const PlannedMatrix& matrix,
                      const MatrixJob::Member& member, SafetensorsWriter& writer) const {
  for (const MatrixJob::Output& output : member.outputs) {
    const std::size_t tensor = output.slot.tensor;
    switch (output.part) {
      case Part::kCodes:
        writer.write(tensor, 0, made.data.span());
        break;
      case Part::kScales:
        writer.write(tensor, 0, made.scales.span());
        break;
      case Part::kGlobalScale:
        writer.write(tensor, 0, bytes_of(made.global_scale));
        break;
      case Part::kInputScale:
        writer.write(tensor, 0, bytes_of(input_scale(matrix)));
        break;
      case Part::kShape:
        writer.write(tensor, 0, bytes_of(std::array<std::int64_t, 2>{made.rows, made.cols}));
        break;
      case Part::kGroupIndex:
        NIBBLE_CHECK(false, "{} has no group index", quant::format_name(made.format));
    }
  }
}

}  // namespace nibble::convert
