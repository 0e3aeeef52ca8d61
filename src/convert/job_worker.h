// Carries out the jobs of a plan: reads, checks, encodes, compares, writes.
#pragma once

#include <vector>

#include "checkpoint/checkpoint.h"
#include "convert/plan.h"
#include "convert/report.h"
#include "convert/safetensors_writer.h"

namespace nibble::convert {

// run() may be called from several threads at once, for different jobs.
class JobWorker {
 public:
  // Both outlive the worker.
  JobWorker(const checkpoint::Checkpoint& checkpoint, const Plan& plan);

  // `writer` is that of the job's shard. Throws CheckpointError for bytes that the loader would refuse,
  // Error(kFailed) when the system refuses to write.
  void run(const Job& job, SafetensorsWriter& writer);

  // Of the converted matrices whose jobs have run, in the plan's order. Call it when all have.
  std::vector<MatrixReport> reports() const;

 private:
  void copy(const checkpoint::TensorSource& source, const TensorJob* checks, std::size_t tensor,
            SafetensorsWriter& writer) const;
  void keep(const MatrixJob::Member& member, SafetensorsWriter& writer) const;
  void encode_members(const MatrixJob& job, SafetensorsWriter& writer);
  void round_rows(const MatrixJob::Member& member, SafetensorsWriter& writer);
  void check_shared_scale(const MatrixJob& job,
                          const std::vector<quant::HostMatrix>& sources) const;
  float input_scale(const PlannedMatrix& matrix) const;
  void write(const quant::HostMatrix& made, const PlannedMatrix& matrix,
             const MatrixJob::Member& member, SafetensorsWriter& writer) const;
  const PlannedMatrix& planned(const MatrixJob::Member& member) const {
    return plan_.matrices[static_cast<std::size_t>(member.matrix)];
  }

  const checkpoint::Checkpoint& checkpoint_;
  const Plan& plan_;
  std::vector<MatrixReport>
      reports_;  // a place for each matrix, written by the one job that has it
};

}  // namespace nibble::convert
