#include "plan/remedies.h"

#include <fmt/format.h>

namespace nibble::plan {
namespace {

constexpr std::int64_t kContextStep = 256;  // tokens a page

class Search {
 public:
  Search(const model::ModelConfig& config, const WeightGroups& weights) : c_(config), w_(weights) {}

  bool fits(const PlanOptions& options) const { return plan_memory(c_, w_, options).fits(); }

  // The largest n in [1, most] for which with(n) fits; 0: none. Memory grows with n.
  template <typename With>
  std::int64_t largest(std::int64_t most, const With& with) const {
    std::int64_t low = 0, high = most;
    while (low < high) {
      const std::int64_t middle = low + (high - low + 1) / 2;
      if (fits(with(middle)))
        low = middle;
      else
        high = middle - 1;
    }
    return low;
  }

 private:
  const model::ModelConfig& c_;
  const WeightGroups& w_;
};

constexpr const char* kKindsBySize[] = {"rtx-5090",  "h100", "rtx-pro-6000",
                                        "dgx-spark", "h200", "b200"};

}  // namespace

std::int64_t sequences_that_fit(const model::ModelConfig& config, const WeightGroups& weights,
                                PlanOptions options) {
  return Search(config, weights).largest(kMostSequences, [&](std::int64_t n) {
    options.concurrency = static_cast<int>(n);
    return options;
  });
}

std::vector<std::string> remedies(const model::ModelConfig& config, const WeightGroups& weights,
                                  const PlanOptions& options) {
  const Search search(config, weights);
  std::vector<std::string> out;
  if (search.fits(options)) return out;

  const std::int64_t pages = search.largest(options.context / kContextStep, [&](std::int64_t n) {
    PlanOptions changed = options;
    changed.context = n * kContextStep;
    return changed;
  });
  if (pages > 0 && pages * kContextStep < options.context)
    out.push_back(fmt::format("--context {}: the longest that fits for {} sequence{}",
                              pages * kContextStep, options.concurrency,
                              options.concurrency == 1 ? "" : "s"));
  const std::int64_t sequences = search.largest(options.concurrency, [&](std::int64_t n) {
    PlanOptions changed = options;
    changed.concurrency = static_cast<int>(n);
    return changed;
  });
  if (sequences > 0)
    out.push_back(fmt::format("--concurrency {}: the most that fit at {} tokens", sequences,
                              options.context));
  PlanOptions narrow = options;
  narrow.kv_dtype = KvDtype::kFp8;
  if (resolve_kv_dtype(options.kv_dtype, config, options.gpu.machine.arch) != KvDtype::kFp8 &&
      search.fits(narrow))
    out.push_back("--kv-dtype fp8");
  PlanOptions undrafted = options;
  undrafted.draft = false;
  if (options.draft && search.fits(undrafted)) {
    const MemoryPlan with = plan_memory(config, weights, options);
    out.push_back(fmt::format("--draft off: {:.1f} GB less on each GPU, no drafting",
                              static_cast<double>(with.draft) / 1e9));
  }
  for (int n = options.gpu.count + 1; n <= kMaxGpus && options.gpu.machine.kind != "cpu"; ++n) {
    if (config.o_groups % n != 0) continue;  // an even split or none
    PlanOptions more = options;
    more.gpu.count = n;
    if (!search.fits(more)) continue;
    out.push_back(fmt::format("--gpu {}:{}", more.gpu.machine.kind, n));
    break;
  }
  for (const char* kind : kKindsBySize) {
    PlanOptions other = options;
    other.gpu.machine = *find_machine(kind);
    if (other.gpu.machine.kind == options.gpu.machine.kind || !search.fits(other)) continue;
    out.push_back(fmt::format("--gpu {}:{}", kind, other.gpu.count));
    break;
  }
  if (out.empty())
    out.push_back(
        "no change of one setting makes it fit; try several together, or a smaller model");
  return out;
}

}  // namespace nibble::plan
