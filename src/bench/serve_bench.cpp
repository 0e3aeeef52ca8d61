#include "bench/serve_bench.h"

#include <algorithm>
#include <span>
#include <utility>

#include "bench/probe.h"

namespace nibble::bench {
namespace {

constexpr std::size_t kBlocks = 4;                  // with a baseline
constexpr std::uint64_t kWarmupSeed = 0x77a12700u;  // xor: none of the trace's own requests

void append(LoadResult& sum, LoadResult&& part, int first_conversation) {
  for (RequestRecord& record : part.records) {
    record.conversation += first_conversation;
    sum.records.push_back(std::move(record));
  }
  sum.duration_s += part.duration_s;
  sum.unsent += part.unsent;
}

// Servers with the counts their results began with.
struct Side {
  Target target;
  std::optional<DraftCounts> before;
  LoadResult result;

  Report report() const {
    std::optional<DraftCounts> drafts = read_draft_counts(target);
    if (drafts && before)
      drafts = DraftCounts{drafts->drafted - before->drafted, drafts->accepted - before->accepted};
    return make_report(target, result, before ? drafts : std::nullopt);
  }
};

}  // namespace

ServeBench run_serve_bench(const ServeBenchOptions& options,
                           const std::function<void(double)>& progress) {
  const TextSource text = options.text_file.empty() ? TextSource::generated()
                                                    : TextSource::from_file(options.text_file);
  std::vector<Side> sides;
  sides.push_back({probe(options.url, options.api_key, options.model), {}, {}});
  if (!options.baseline.empty())
    sides.push_back({probe(options.baseline, options.api_key, options.baseline_model), {}, {}});

  const std::vector<Conversation> trace = make_trace(options.trace, text);
  if (options.warmup > 0) {
    TraceOptions warmup = options.trace;
    warmup.requests = options.warmup;
    warmup.seed ^= kWarmupSeed;
    LoadOptions load = options.load;
    load.rate = 0.0;  // as fast as the answers come: warming up is not measured
    load.concurrency = std::max(1, std::min(load.concurrency, options.warmup));
    const std::vector<Conversation> conversations = make_trace(warmup, text);
    for (Side& side : sides) (void)run_load(side.target, load, conversations);
  }
  for (Side& side : sides) side.before = read_draft_counts(side.target);

  const std::size_t blocks = sides.size() == 1 ? 1 : std::min(kBlocks, trace.size());
  const double total = static_cast<double>(count_turns(trace) * sides.size());
  std::size_t done = 0;
  for (std::size_t block = 0; block < blocks; ++block) {
    const std::size_t begin = trace.size() * block / blocks;
    const std::size_t end = trace.size() * (block + 1) / blocks;
    LoadOptions load = options.load;
    load.seed += block;
    for (Side& side : sides) {
      LoadResult part = run_load(side.target, load, std::span(trace).subspan(begin, end - begin),
                                 [&](std::size_t ended) {
                                   if (progress)
                                     progress(static_cast<double>(done + ended) / total);
                                 });
      done += part.records.size();
      append(side.result, std::move(part), static_cast<int>(begin));
    }
  }
  ServeBench bench{{options.trace, options.load, options.warmup, text.description()},
                   sides[0].report(),
                   std::nullopt,
                   {}};
  if (sides.size() > 1) bench.baseline = sides[1].report();
  bench.records = std::move(sides[0].result.records);
  return bench;
}

}  // namespace nibble::bench
