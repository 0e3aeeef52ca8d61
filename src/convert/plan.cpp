#include "convert/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "convert/source_walk.h"
#include "model/deepseek_v4/weight_walk.h"
#include "nibble/status.h"

namespace nibble::convert {
namespace {

using checkpoint::TensorSource;
using checkpoint::WeightClass;
using quant::Format;
using tensor::DType;

constexpr std::int64_t kSliceRows = 128;
constexpr std::int64_t kChunkBytes = 4 << 20;

bool is_fp8(const PlannedMatrix& m) {
  return m.source.format.format == Format::kFp8Block128 ||
         m.source.format.format == Format::kFp8Block32;
}

// The name of a tensor that is kept: DeepSeek's stem, and the suffix it has in the source, which says
// what its bytes mean (a global scale and its reciprocal have one canonical name).
std::string kept_name(const TensorSource& source) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 7> kSuffixes = {{
      {".weight_packed", ".weight"},
      {".weight_scale", ".scale"},
      {".weight_scale_inv", ".scale"},
      {".weight_scale_2", ".global_scale"},
      {".weight_global_scale", ".global_scale"},
      {".input_global_scale", ".input_scale"},
      {".input_scale", ".input_scale"},
  }};
  const std::string_view stored = source.stored->name, canonical = source.name;
  for (const auto& [other, canon] : kSuffixes) {
    if (!stored.ends_with(other) || !canonical.ends_with(canon)) continue;
    return std::string(canonical.substr(0, canonical.size() - canon.size())) + std::string(other);
  }
  return std::string(canonical);
}

class Planner {
 public:
  Planner(const checkpoint::Checkpoint& checkpoint, Target target)
      : checkpoint_(checkpoint), columns_(target_columns(target)) {
    plan_.target = target;
  }

  Plan run(const model::ModelConfig& config) {
    SourceTensors source = walk_source(checkpoint_, config);
    plan_.matrices = std::move(source.matrices);
    plan_.notes = std::move(source.notes);
    for (const checkpoint::File& shard : checkpoint_.shards())
      plan_.shards.push_back({shard.path().substr(shard.path().find_last_of('/') + 1), {}, {}});
    entries_.resize(plan_.shards.size());
    gather_formats();
    for (LooseTensor& loose : source.loose) keep(loose);
    for (std::size_t i = 0; i < plan_.matrices.size(); ++i) place(static_cast<int>(i));
    for (std::size_t s = 0; s < plan_.shards.size(); ++s) arrange(s);
    std::erase_if(plan_.shards, [](const PlannedShard& shard) { return shard.tensors.empty(); });
    for (std::size_t s = 0; s < plan_.shards.size(); ++s) count(plan_.shards[s], s);
    return std::move(plan_);
  }

 private:
  // A tensor of a new shard before the order is known, and the output of a job that it is.
  struct Entry {
    NewTensor tensor;
    std::size_t job;
    std::size_t member, output;  // of a MatrixJob
  };
  using Place = std::pair<std::int64_t, std::int64_t>;  // in the source, to sort by

  void gather_formats() {
    std::map<std::tuple<WeightClass, Format, DType>, std::int64_t> counts;
    for (PlannedMatrix& m : plan_.matrices) {
      const WeightClass weights =
          m.kind == kUnusedDraftKind ? WeightClass::kDraft : model::weight_class(m.kind);
      m.converted = plan_.target == Target::kBf16 ? m.source.format.format != Format::kBF16
                                                  : weights == WeightClass::kRoutedExperts;
      ++counts[{weights, m.source.format.format, m.source.format.scale_dtype}];
    }
    for (const auto& [key, count] : counts)
      plan_.found.push_back({std::get<0>(key), std::get<1>(key), std::get<2>(key), count});
    const auto claims = checkpoint::read_quant_claims(checkpoint_.folder());
    for (std::string& line : checkpoint::contradictions(claims, plan_.found))
      plan_.notes.push_back(std::move(line));
  }

  Job& add_job(std::size_t shard, const TensorSource& first) {
    places_[shard].emplace_back(first.stored->offset + first.offset,
                                static_cast<std::int64_t>(plan_.shards[shard].jobs.size()));
    return plan_.shards[shard].jobs.emplace_back();
  }

  void keep(const LooseTensor& loose) { keep(loose.source, loose.used, loose.highest); }

  void keep(const TensorSource& source, bool used, std::optional<std::int64_t> highest) {
    const auto shard = static_cast<std::size_t>(source.stored->shard);
    Job& job = add_job(shard, source);
    const bool floats = source.stored->dtype == DType::kF32 ||
                        source.stored->dtype == DType::kBF16 || source.stored->dtype == DType::kF16;
    job.tensor = TensorJob{source, {}, used && floats, highest};
    job.bytes = source.bytes;
    entries_[shard].push_back({{kept_name(source), source.stored->dtype, source.shape},
                               plan_.shards[shard].jobs.size() - 1,
                               0,
                               0});
  }

  void place(int index) {
    const PlannedMatrix& m = plan_.matrices[static_cast<std::size_t>(index)];
    if (!m.converted && m.plain()) return keep(m.source.parts.weight, true, std::nullopt);
    if (m.converted && m.source.cols % columns_ != 0)
      throw CheckpointError(fmt::format("{}: expected columns in groups of {} for {}, found {}",
                                        where(checkpoint_, m.source.parts.weight), columns_,
                                        target_name(plan_.target), m.source.cols));
    const auto shard = static_cast<std::size_t>(m.source.parts.weight.stored->shard);
    const bool shared = m.converted && plan_.target == Target::kNvfp4 && m.partner >= 0;
    const PlannedMatrix* partner =
        shared ? &plan_.matrices[static_cast<std::size_t>(m.partner)] : nullptr;
    if (partner != nullptr && m.partner < index &&
        partner->source.parts.weight.stored->shard == m.source.parts.weight.stored->shard)
      return;  // written together with the first of the two
    Job& job = add_job(shard, m.source.parts.weight);
    job.matrix = MatrixJob{};
    const std::size_t at = plan_.shards[shard].jobs.size() - 1;
    add_member(shard, at, index, true);
    if (partner == nullptr) return;
    add_member(shard, at, m.partner,
               partner->source.parts.weight.stored->shard == m.source.parts.weight.stored->shard);
  }

  void add_member(std::size_t shard, std::size_t job_index, int index, bool written) {
    Job& job = plan_.shards[shard].jobs[job_index];
    const PlannedMatrix& m = plan_.matrices[static_cast<std::size_t>(index)];
    job.bytes += m.source.bytes();
    MatrixJob::Member member{index, {}};
    if (written)
      for (MatrixTensor& part : tensors_of(m)) {
        entries_[shard].push_back(
            {std::move(part.tensor), job_index, job.matrix->members.size(), member.outputs.size()});
        member.outputs.push_back({part.part, {}});
      }
    job.matrix->members.push_back(std::move(member));
  }

  std::vector<MatrixTensor> tensors_of(const PlannedMatrix& m) const {
    const checkpoint::MatrixSource& s = m.source;
    if (m.converted) {
      const bool moves = s.format.format == target_format(plan_.target);
      const bool keeps_type = moves && plan_.target != Target::kFp8;
      return matrix_tensors(plan_.target, s.name, s.rows, s.cols,
                            keeps_type ? s.format.scale_dtype : target_scale_dtype(plan_.target));
    }
    std::vector<MatrixTensor> kept;
    const bool in_layout = is_fp8(m) && model::weight_class(m.kind) != WeightClass::kDraft &&
                           m.kind != kUnusedDraftKind;
    for (const auto& [part, source] :
         {std::pair{Part::kCodes, &s.parts.weight}, std::pair{Part::kScales, &s.parts.scale},
          std::pair{Part::kGlobalScale, &s.parts.global_scale},
          std::pair{Part::kInputScale, &s.parts.input_scale},
          std::pair{Part::kShape, &s.parts.shape},
          std::pair{Part::kGroupIndex, &s.parts.group_index}}) {
      if (source->stored == nullptr) continue;
      NewTensor tensor{kept_name(*source), source->stored->dtype, source->shape};
      if (in_layout && part == Part::kScales) {
        tensor.name = s.name + (plan_.target == Target::kInt4 ? ".weight_scale" : ".scale");
        tensor.dtype = plan_.target == Target::kFp8 ? DType::kF32 : s.format.scale_dtype;
      }
      kept.push_back({part, std::move(tensor)});
    }
    return kept;
  }

  // The final order of a shard's tensors, and of its jobs.
  void arrange(std::size_t s) {
    PlannedShard& shard = plan_.shards[s];
    std::vector<Place>& places = places_[s];
    std::vector<std::int64_t> begin(shard.jobs.size());
    for (const auto& [offset, job] : places) begin[static_cast<std::size_t>(job)] = offset;
    std::stable_sort(entries_[s].begin(), entries_[s].end(),
                     [&](const Entry& a, const Entry& b) { return begin[a.job] < begin[b.job]; });
    std::vector<NewTensor> tensors;
    for (const Entry& entry : entries_[s]) tensors.push_back(entry.tensor);
    for (const std::size_t from : aligned_order(tensors)) {
      const Entry& entry = entries_[s][from];
      Job& job = shard.jobs[entry.job];
      const Slot slot{s, shard.tensors.size()};
      if (job.tensor)
        job.tensor->slot = slot;
      else
        job.matrix->members[entry.member].outputs[entry.output].slot = slot;
      shard.tensors.push_back(tensors[from]);
    }
    std::sort(places.begin(), places.end());
    std::vector<Job> jobs;
    jobs.reserve(places.size());
    for (const Place& place : places)
      jobs.push_back(std::move(shard.jobs[static_cast<std::size_t>(place.second)]));
    shard.jobs = std::move(jobs);
  }

  void count(PlannedShard& shard, std::size_t s) {
    for (const NewTensor& tensor : shard.tensors) plan_.tensor_bytes += tensor.bytes();
    plan_.file_bytes += safetensors_bytes(shard.tensors);
    for (Job& job : shard.jobs) {
      plan_.read_bytes += job.bytes;
      plan_.job_bytes = std::max(plan_.job_bytes, memory_of(job));
      if (job.tensor) {
        job.tensor->slot.shard = s;
        continue;
      }
      for (MatrixJob::Member& member : job.matrix->members)
        for (MatrixJob::Output& output : member.outputs) output.slot.shard = s;
    }
  }

  // What JobWorker holds at once: see there.
  std::int64_t memory_of(const Job& job) const {
    if (job.tensor) return std::min(job.bytes, kChunkBytes);
    std::int64_t bytes = 0;
    for (const MatrixJob::Member& member : job.matrix->members) {
      const PlannedMatrix& m = plan_.matrices[static_cast<std::size_t>(member.matrix)];
      // A slice as read, in fp32, and as made.
      const std::int64_t slice =
          std::min(kSliceRows, m.source.rows) * m.source.cols * std::int64_t{4 + 4 + 2};
      if (m.converted && m.plain() && plan_.target == Target::kBf16) {
        bytes += slice;
        continue;
      }
      bytes += m.source.bytes();
      if (!m.converted) {
        bytes += std::min(m.source.bytes(), kChunkBytes);
        continue;
      }
      bytes += slice;
      for (const MatrixTensor& made : tensors_of(m)) bytes += made.tensor.bytes();
    }
    return bytes;
  }

  const checkpoint::Checkpoint& checkpoint_;
  const std::int64_t columns_;
  Plan plan_;
  std::vector<std::vector<Entry>> entries_;           // by shard
  std::map<std::size_t, std::vector<Place>> places_;  // by shard
};

}  // namespace

Plan make_plan(const checkpoint::Checkpoint& checkpoint, const model::ModelConfig& config,
               Target target) {
  return Planner(checkpoint, target).run(config);
}

}  // namespace nibble::convert
