#include "sample/sampler.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "sample/adjust.h"
#include "sample/row_scan.h"
#include "sample/truncated_draw.h"

namespace nibble::sample {
namespace {

constexpr std::uint64_t kGoldenGamma = 0x9E3779B97F4A7C15u;  // splitmix64's step

// The finaliser of splitmix64 (Steele, Lea, Flood 2014): a bijection that mixes every input bit
// into every output bit.
std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

struct Scratch {
  std::vector<float> adjusted;
  TruncatedDraw truncated;
};
Scratch& scratch() {
  thread_local Scratch mine;
  return mine;
}

Result<RowRange> checked_range(std::span<const float> logits) {
  const RowRange range = row_range(logits);
  const auto broken = [](const char* message) {
    return Status{StatusCode::kInternal, message, ""};
  };
  if (range.nan) return broken("the model's output holds a NaN");
  if (range.top == INFINITY) return broken("the model's output holds an infinite logit");
  if (range.top == -INFINITY) return broken("the model's output holds no finite logit");
  return range;
}

Result<RowRange> adjusted_range(std::span<const float> logits) {
  const RowRange range = row_range(logits);
  const auto refuse = [](const char* message) {
    return Status{StatusCode::kInvalidArgument, message, ""};
  };
  if (range.nan || range.top == INFINITY) return refuse("the penalties overflow a logit");
  if (range.top == -INFINITY)
    return refuse("no token may be drawn: masks, penalties and logit_bias exclude all");
  return range;
}

Result<TokenId> draw_token(std::span<const float> logits, const Draw& draw) {
  Result<RowRange> range = checked_range(logits);
  if (!range) return range.status();
  if (adjusts(draw)) {
    std::vector<float>& adjusted = scratch().adjusted;
    if (const auto done = adjust(logits, draw, adjusted); !done) return done.status();
    logits = adjusted;
    range = adjusted_range(logits);
    if (!range) return range.status();
  }
  if (draw.params->temperature == 0.0f)
    return static_cast<TokenId>(next_at_least(logits, 0, range->top));
  return scratch().truncated.draw(logits, *range, *draw.params,
                                  uniform(draw.params->seed, draw.position));
}

}  // namespace

double uniform(std::uint64_t seed, std::uint64_t position) {
  const std::uint64_t bits = mix(mix(seed + kGoldenGamma) + position * kGoldenGamma);
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

std::uint64_t choice_seed(std::uint64_t seed, int index) {
  return index == 0 ? seed : mix(seed + static_cast<std::uint64_t>(index) * kGoldenGamma);
}

Result<GeneratedToken> draw(std::span<const float> logits, const Draw& draw) {
  NIBBLE_CHECK(draw.params && draw.params->temperature >= 0.0f, "a draw without parameters");
  const Result<TokenId> token = draw_token(logits, draw);
  if (!token) return token.status();
  GeneratedToken out{*token, std::nullopt, {}};
  if (draw.params->logprobs >= 0) {
    Logprobs found = logprobs(logits, *token, draw.params->logprobs);
    out.logprob = found.chosen;
    out.top = std::move(found.top);
  }
  return out;
}

bool is_argmax(const Draw& draw) {
  return draw.params->temperature == 0.0f && draw.params->logprobs < 0 && !adjusts(draw);
}

Logprobs logprobs(std::span<const float> logits, TokenId chosen, int count) {
  NIBBLE_CHECK(chosen >= 0 && static_cast<std::size_t>(chosen) < logits.size(), "token {} of {}",
               chosen, logits.size());
  const float top = row_range(logits).top;
  const double log_sum = static_cast<double>(top) + std::log(exp_sum(logits, top));
  const auto logprob = [&](TokenId id) {
    return static_cast<float>(logits[static_cast<std::size_t>(id)] - log_sum);
  };
  Logprobs result{logprob(chosen), {}};
  const auto most = static_cast<std::size_t>(std::max(count, 0));
  for (const Ranked& entry : scratch().truncated.best(logits, most, -INFINITY))
    result.top.push_back({entry.token, logprob(entry.token)});
  return result;
}

}  // namespace nibble::sample
