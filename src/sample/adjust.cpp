#include "sample/adjust.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace nibble::sample {
namespace {

// The token's logit after the penalties.
float penalised(float logit, const SamplingParams& params, const TokenCounts::Entry& counts) {
  if (counts.prompt + counts.generated > 0)
    logit = logit > 0.0f ? logit / params.repetition_penalty : logit * params.repetition_penalty;
  if (counts.generated > 0) {
    logit -= params.frequency_penalty * static_cast<float>(counts.generated);
    logit -= params.presence_penalty;
  }
  return logit;
}

bool allows(std::span<const std::uint64_t> allowed, TokenId token) {
  return allowed.empty() ||
         (allowed[static_cast<std::size_t>(token) / 64] >> (static_cast<std::size_t>(token) % 64) &
          1) != 0;
}

void mask(std::span<const std::uint64_t> allowed, std::span<float> row) {
  NIBBLE_CHECK(allowed.size() * 64 >= row.size(), "{} words of mask for {} tokens", allowed.size(),
               row.size());
  for (std::size_t begin = 0; begin < row.size(); begin += 64) {
    const std::uint64_t word = allowed[begin / 64];
    const std::span<float> part = row.subspan(begin, std::min<std::size_t>(64, row.size() - begin));
    if (word == 0) std::fill(part.begin(), part.end(), -INFINITY);
    if (word == 0 || word == ~std::uint64_t{0}) continue;
    for (std::size_t i = 0; i < part.size(); ++i)
      if ((word >> i & 1) == 0) part[i] = -INFINITY;
  }
}

// Every token from its original logit, so that a drafted one, whose counts `seen` does not have yet,
// may be done over.
void penalise(std::span<const float> logits, const Draw& draw, std::span<float> row) {
  NIBBLE_CHECK(draw.seen, "penalties need the tokens that were seen");
  const auto apply = [&](const TokenCounts::Entry& counts) {
    const auto at = static_cast<std::size_t>(counts.token);
    NIBBLE_CHECK(counts.token >= 0 && at < row.size(), "token {} of {}", counts.token, row.size());
    if (allows(draw.allowed, counts.token)) row[at] = penalised(logits[at], *draw.params, counts);
  };
  for (const TokenCounts::Entry& counts : draw.seen->entries()) apply(counts);
  for (const TokenId token : draw.drafted) {
    TokenCounts::Entry counts = draw.seen->find(token);
    counts.generated +=
        static_cast<std::int32_t>(std::count(draw.drafted.begin(), draw.drafted.end(), token));
    apply(counts);
  }
}

}  // namespace

bool adjusts(const Draw& draw) {
  return !draw.allowed.empty() || !draw.params->logit_bias.empty() || uses_counts(*draw.params);
}

Result<std::monostate> adjust(std::span<const float> logits, const Draw& draw,
                              std::vector<float>& out) {
  out.assign(logits.begin(), logits.end());
  if (!draw.allowed.empty()) mask(draw.allowed, out);
  if (uses_counts(*draw.params)) penalise(logits, draw, out);
  for (const auto& [token, bias] : draw.params->logit_bias) {
    const auto at = static_cast<std::size_t>(token);
    if (token < 0 || at >= out.size())
      return Status{StatusCode::kInvalidArgument,
                    fmt::format("logit_bias: token {}; the vocabulary has {}", token, out.size()),
                    "logit_bias"};
    out[at] = bias <= -100.0f ? -INFINITY : out[at] + bias;
  }
  return std::monostate{};
}

}  // namespace nibble::sample
