#include "convert/convert.h"

#include <fmt/format.h>

#include <atomic>
#include <utility>

#include "checkpoint/checkpoint.h"
#include "checkpoint/shard_index.h"
#include "convert/job_runner.h"
#include "convert/job_worker.h"
#include "convert/metadata.h"
#include "convert/output_file.h"
#include "convert/output_folder.h"
#include "convert/plan.h"
#include "convert/side_files.h"
#include "nibble/status.h"

namespace nibble::convert {
namespace {

constexpr std::int64_t kMaxConfigBytes = 16 << 20;
constexpr std::int64_t kBlockBytes = 4096;  // a file takes whole blocks of the disk

struct WrittenFile {
  std::string name, text;
};

// The index and config.json come last: until then the folder is no checkpoint.
std::vector<WrittenFile> written_files(const checkpoint::Checkpoint& checkpoint, const Plan& plan) {
  std::vector<WrittenFile> files;
  if (std::string text = hf_quant_config(plan); !text.empty())
    files.push_back({"hf_quant_config.json", std::move(text)});
  files.push_back({checkpoint::kShardIndexName, shard_index(plan)});
  const checkpoint::Folder& folder = checkpoint.folder();
  files.push_back({"config.json", converted_config(folder.read_text("config.json", kMaxConfigBytes),
                                                   folder.path_of("config.json"), plan)});
  return files;
}

std::int64_t space_needed(const Plan& plan, const SideFiles& side,
                          const std::vector<WrittenFile>& written) {
  std::int64_t bytes = plan.file_bytes + side.bytes;
  for (const WrittenFile& file : written) bytes += static_cast<std::int64_t>(file.text.size());
  return bytes + kBlockBytes * static_cast<std::int64_t>(plan.shards.size() + side.copied.size() +
                                                         written.size() + 2);
}

void count_kept(const Plan& plan, ConvertReport& report) {
  for (const PlannedShard& shard : plan.shards)
    for (const Job& job : shard.jobs) {
      const auto count = [&](const Slot& slot) {
        ++report.kept_tensors;
        report.kept_bytes += shard.tensors[slot.tensor].bytes();
      };
      if (job.tensor) {
        count(job.tensor->slot);
        continue;
      }
      for (const MatrixJob::Member& member : job.matrix->members)
        if (!plan.matrices[static_cast<std::size_t>(member.matrix)].converted)
          for (const MatrixJob::Output& output : member.outputs) count(output.slot);
    }
}

}  // namespace

ConvertReport convert(const ConvertOptions& options) {
  const checkpoint::Checkpoint checkpoint = checkpoint::Checkpoint::open(options.source);
  const model::ModelConfig config = model::ModelConfig::load(checkpoint.folder());
  OutputFolder output(options.destination, options.source);
  const Plan plan = make_plan(checkpoint, config, options.target);
  const SideFiles side = find_side_files(checkpoint.folder());
  const std::vector<WrittenFile> written = written_files(checkpoint, plan);
  output.require_space(space_needed(plan, side, written));
  output.create();

  JobWorker worker(checkpoint, plan);
  std::atomic<std::int64_t> done{0};
  const auto poll = [&] {
    if (options.cancelled && options.cancelled())
      throw Error(ExitCode::kFailed,
                  fmt::format("interrupted: nothing was left at {}", output.path()));
    if (options.progress && plan.read_bytes > 0)
      options.progress(static_cast<double>(done) / static_cast<double>(plan.read_bytes));
  };
  for (const PlannedShard& shard : plan.shards) {
    SafetensorsWriter writer(output.partial() + "/" + shard.name, shard.tensors);
    run_jobs(
        shard.jobs.size(), options.threads,
        [&](std::size_t i) {
          worker.run(shard.jobs[i], writer);
          done += shard.jobs[i].bytes;
        },
        poll);
    writer.finish(options.durable);
  }
  for (const std::string& name : side.copied)
    copy_side_file(checkpoint.folder(), name, output.partial(), options.durable);
  for (const WrittenFile& file : written)
    write_file(output.partial() + "/" + file.name, file.text, options.durable);
  poll();
  output.commit();

  ConvertReport report;
  report.source = checkpoint.folder().path();
  report.destination = output.path();
  report.target = options.target;
  report.shards = static_cast<std::int64_t>(plan.shards.size());
  report.source_bytes = checkpoint.tensor_bytes();
  report.bytes = plan.tensor_bytes;
  report.threads = options.threads;
  report.memory_bytes = plan.job_bytes * options.threads;
  report.matrices = worker.reports();
  report.files = side.copied;
  for (const WrittenFile& file : written) report.files.push_back(file.name);
  report.left_out = side.left_out;
  report.notes = plan.notes;
  count_kept(plan, report);
  sum_up(report);
  return report;
}

}  // namespace nibble::convert
