#include "sched/step_cost.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>

namespace nibble::sched {
namespace {

constexpr int kLeastPrefill = 16;  // tokens: below that a chunk is all overhead
// Of the budget; the rest is for what a step costs more than the last ones did.
constexpr double kUsedBudget = 0.9;
constexpr int kTrialSteps = 4;      // observations before a depth is judged
constexpr int kRecheckSteps = 512;  // between trials of a depth that did not pay
constexpr double kWorthIt = 1.02;   // the gain a trial must be able to bring
constexpr double kAcceptanceWeight = 1.0 / 32;

int log2_floor(int x) {
  return std::bit_width(static_cast<unsigned>(std::max(x, 1))) - 1;
}

// Sequences that count as equally many: eight steps an octave.
int bucket(int decoding) {
  if (decoding <= 16) return decoding;
  const int octave = log2_floor(decoding), unit = 1 << (octave - 3);
  return decoding / unit * unit;
}

}  // namespace

void StepCost::Recent::add(double value) {
  values[static_cast<std::size_t>(count) % values.size()] = value;
  ++count;
  std::array<double, 8> sorted = values;
  const auto end = sorted.begin() + std::min<std::ptrdiff_t>(count, std::ssize(sorted));
  const auto middle = sorted.begin() + (end - sorted.begin() - 1) / 2;
  std::nth_element(sorted.begin(), middle, end);
  ms = *middle;
}

void StepCost::observe(const StepShape& shape, double ms) {
  if (shape.prefill == 0) {
    // Only a step that verifies as many tokens as it drafts costs what going on like this costs.
    if (shape.decoding > 0 && shape.verified == shape.drafted && shape.drafted <= kMaxDepth)
      decodes_[bucket(shape.decoding)].by_depth[static_cast<std::size_t>(shape.drafted)].add(ms);
    return;
  }
  const Recent* base = shape.decoding > 0 ? decode_ms(shape.decoding, shape.verified) : nullptr;
  const double prefill = std::max(ms - (base ? base->ms : 0.0), 0.0);
  prefill_[static_cast<std::size_t>(log2_floor(shape.prefill))].add(prefill / shape.prefill);
}

void StepCost::observe_drafts(int proposed, int accepted) {
  for (int i = 0; i < std::min(proposed, kMaxDepth) && i <= accepted; ++i) {
    double& share = accepted_[static_cast<std::size_t>(i)];
    share += ((i < accepted ? 1.0 : 0.0) - share) * kAcceptanceWeight;
  }
}

// The nearest known step of at most as many sequences, else of more.
const StepCost::Recent* StepCost::decode_ms(int decoding, int depth) const {
  const auto known = [&](const Decode& cell) -> const Recent* {
    const Recent& mean = cell.by_depth[static_cast<std::size_t>(std::min(depth, kMaxDepth))];
    return mean.count > 0 ? &mean : nullptr;
  };
  auto at = decodes_.upper_bound(bucket(decoding));
  for (auto below = at; below != decodes_.begin();)
    if (const Recent* mean = known((--below)->second)) return mean;
  for (; at != decodes_.end(); ++at)
    if (const Recent* mean = known(at->second)) return mean;
  return nullptr;
}

int StepCost::prefill_tokens(int decoding, int drafts, double budget_ms, int most) const {
  const Recent* base = decoding > 0 ? decode_ms(decoding, drafts) : nullptr;
  const double room = budget_ms * kUsedBudget - (base ? base->ms : 0.0);
  // From the largest chunk down: one that is known, or twice as long as one that is.
  for (int b = static_cast<int>(prefill_.size()) - 2; b >= 0 && room > 0.0; --b) {
    const Recent &here = prefill_[static_cast<std::size_t>(b)],
                 &half = prefill_[static_cast<std::size_t>(std::max(b - 1, 0))];
    const Recent& rate = here.count > 0 ? here : half;
    if (rate.count == 0) continue;
    const double tokens = rate.ms > 0.0 ? room / rate.ms : most;
    if (tokens < std::ldexp(1.0, b)) continue;
    const double bound = std::min<double>(most, std::ldexp(2.0, b) - 1.0);
    return static_cast<int>(std::min(tokens, bound));
  }
  return std::min(kLeastPrefill, most);
}

double StepCost::expected_tokens(int depth) const {
  double tokens = 1.0, chance = 1.0;
  for (int i = 0; i < depth; ++i) tokens += chance *= accepted_[static_cast<std::size_t>(i)];
  return tokens;
}

int StepCost::best_known(const Decode& cell, int most) const {
  int best = -1;
  double rate = 0.0;
  for (int k = 0; k <= most; ++k) {
    const Recent& mean = cell.by_depth[static_cast<std::size_t>(k)];
    if (mean.count < kTrialSteps) continue;
    const double here = expected_tokens(k) / std::max(mean.ms, 1e-6);
    if (best < 0 || here > rate) {
      best = k;
      rate = here;
    }
  }
  return best;
}

// A depth that was not tried enough though it may pay, or -1. A deeper one costs at least what the one before it does.
int StepCost::to_try(const Decode& cell, int best, int most) const {
  const auto mean = [&](int k) { return cell.by_depth[static_cast<std::size_t>(k)]; };
  for (const int k : {std::min(1, most), 0})
    if (mean(k).count < kTrialSteps) return k;
  const double rate = expected_tokens(best) / std::max(mean(best).ms, 1e-6);
  for (int k = 2; k <= most; ++k) {
    if (mean(k).count >= kTrialSteps) continue;
    const double bound = expected_tokens(k) / std::max(mean(k - 1).ms, 1e-6);
    return bound > rate * kWorthIt ? k : -1;
  }
  return -1;
}

int StepCost::draft_depth(int decoding, int most) {
  most = std::min(most, kMaxDepth);
  if (most <= 0 || decoding <= 0) return 0;
  Decode& cell = decodes_[bucket(decoding)];
  ++cell.steps;
  if (cell.trial_left > 0 && cell.trial <= most) {
    --cell.trial_left;
    return cell.trial;
  }
  const int best = best_known(cell, most);
  int trial = to_try(cell, best, most);
  if (trial < 0 && cell.steps % kRecheckSteps == 0) {
    // The neighbours in turn: what they cost may have changed.
    trial = std::clamp(best + (cell.rechecks++ % 2 == 0 ? 1 : -1), 0, most);
    cell.by_depth[static_cast<std::size_t>(trial)] = {};
  }
  if (trial < 0 || trial == best) return best;
  cell.trial = trial;
  cell.trial_left =
      kTrialSteps;  // one more than counted: the first step verifies what the last depth drafted
  return trial;
}

}  // namespace nibble::sched
