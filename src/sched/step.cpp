#include "sched/step.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "sample/sampler.h"

namespace nibble::sched {
namespace {

std::span<const float> row(std::span<const float> logits, int index, int vocab) {
  return logits.subspan(static_cast<std::size_t>(index) * static_cast<std::size_t>(vocab),
                        static_cast<std::size_t>(vocab));
}

GeneratedToken with_logprobs(TokenId token, std::span<const float> logits, int count) {
  GeneratedToken out{token, std::nullopt, {}};
  if (count < 0) return out;
  sample::Logprobs found = sample::logprobs(logits, token, count);
  out.logprob = found.chosen;
  out.top = std::move(found.top);
  return out;
}

}  // namespace

Stepper::Stepper(engine::ModelRunner& runner, int prefill_chunk)
    : runner_(runner),
      prefill_chunk_(prefill_chunk),
      pages_per_slot_((runner.info().max_model_len + ops::kPageTokens - 1) / ops::kPageTokens),
      pages_(static_cast<std::size_t>(runner.limits().pages)) {
  std::iota(pages_.begin(), pages_.end(), 0);
}

// Rows of decodes first: one call then brings all their logits.
std::vector<Stepper::Part> Stepper::parts_of(std::span<Sequence* const> sequences,
                                             std::vector<StepResult>& results) const {
  std::vector<Part> parts;
  int rows = 0, budget = prefill_chunk_;
  const auto add = [&](std::size_t i, int count, bool decodes) {
    Sequence& s = *sequences[i];
    const auto first_page = static_cast<std::int32_t>(s.slot * pages_per_slot_);
    parts.push_back({&s, &results[i], {rows, count, s.slot, s.device_len, first_page}, decodes});
    rows += count;
  };
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const Sequence& s = *sequences[i];
    if (s.prefilling()) continue;
    NIBBLE_CHECK(s.device_len + 1 == static_cast<int>(s.tokens.size()), "cached {} of {} tokens",
                 s.device_len, s.tokens.size());
    add(i, s.draft ? 2 : 1, true);
  }
  for (std::size_t i = 0; i < sequences.size() && budget > 0; ++i) {
    const Sequence& s = *sequences[i];
    if (!s.prefilling()) continue;
    const int count = std::min(budget, s.prompt_len() - s.device_len);
    add(i, count, false);
    budget -= count;
  }
  return parts;
}

std::vector<StepResult> Stepper::advance(std::span<Sequence* const> sequences) {
  std::vector<StepResult> results(sequences.size());
  std::vector<Part> parts = parts_of(sequences, results);
  forward(parts);
  const auto decoding = static_cast<std::ptrdiff_t>(
      std::count_if(parts.begin(), parts.end(), [](const Part& part) { return part.decodes; }));
  if (decoding > 0) {
    const ops::Segment& last = parts[static_cast<std::size_t>(decoding) - 1].segment;
    const std::span<const float> logits = runner_.logits(0, last.first_row + last.rows);
    for (auto part = parts.begin(); part != parts.begin() + decoding; ++part) verify(*part, logits);
  }
  for (auto part = parts.begin() + decoding; part != parts.end(); ++part) finish_chunk(*part);
  draft(parts);
  return results;
}

void Stepper::forward(const std::vector<Part>& parts) {
  ids_.clear();
  segments_.clear();
  for (const Part& part : parts) {
    const Sequence& s = *part.sequence;
    const auto begin = s.tokens.begin() + part.segment.position;
    if (part.decodes) {
      ids_.push_back(*begin);
      if (s.draft) ids_.push_back(*s.draft);
    } else {
      ids_.insert(ids_.end(), begin, begin + part.segment.rows);
    }
    segments_.push_back(part.segment);
  }
  runner_.forward({ids_, segments_, pages_});
}

// `logits` are those of all rows that decode.
void Stepper::verify(Part& part, std::span<const float> logits) {
  Sequence& s = *part.sequence;
  const int vocab = runner_.info().vocab_size, first = part.segment.first_row;
  part.kept = 1;
  part.going = generate(s, row(logits, first, vocab), *part.result);
  if (s.draft) {
    ++s.usage.drafted_tokens;
    if (part.going && s.tokens.back() == *s.draft) {
      ++s.usage.accepted_tokens;
      part.kept = 2;
      part.going = generate(s, row(logits, first + 1, vocab), *part.result);
    }
  }
  s.draft.reset();
  s.device_len += part.kept;  // a rejected row is forgotten by not counting it
}

void Stepper::finish_chunk(Part& part) {
  Sequence& s = *part.sequence;
  part.kept = part.segment.rows;
  part.going = true;
  s.device_len += part.kept;
  if (s.request.prompt_logprobs) append_prompt_logprobs(part);
  if (s.prefilling()) return;
  part.result->prompt = std::move(s.prompt_logprobs);
  if (s.request.sampling.max_tokens == 0) {
    part.result->finished = FinishReason::kLength;
    part.going = false;
    return;
  }
  part.going = generate(s, runner_.logits(part.segment.first_row + part.kept - 1, 1), *part.result);
}

void Stepper::append_prompt_logprobs(const Part& part) {
  Sequence& s = *part.sequence;
  const int begin = part.segment.position, count = s.request.sampling.logprobs;
  if (begin == 0) s.prompt_logprobs.push_back({s.tokens[0], std::nullopt, {}});
  // Row i holds the distribution of the token after it; the last prompt token's row belongs to the
  // first new token.
  const int known = std::min(part.segment.rows, s.prompt_len() - 1 - begin);
  if (known <= 0) return;
  const std::span<const float> logits = runner_.logits(part.segment.first_row, known);
  for (int i = 0; i < known; ++i)
    s.prompt_logprobs.push_back(with_logprobs(s.tokens[static_cast<std::size_t>(begin + i + 1)],
                                              row(logits, i, runner_.info().vocab_size),
                                              std::max(count, 0)));
}

bool Stepper::generate(Sequence& s, std::span<const float> logits, StepResult& result) {
  const SamplingParams& params = s.request.sampling;
  const Result<GeneratedToken> token = sample::draw(logits, {&params, s.tokens.size(), &s.seen});
  if (!token) {
    result.finished = FinishReason::kError;
    result.error = token.status();
    return false;
  }
  if (token->token == runner_.info().eos_token && !params.ignore_eos) {
    result.finished = FinishReason::kStop;
    return false;
  }
  s.tokens.push_back(token->token);
  if (sample::uses_counts(params)) s.seen.add_generated(token->token);
  ++s.usage.completion_tokens;
  result.tokens.push_back(*token);
  if (s.tokens_left() == 0) result.finished = FinishReason::kLength;
  return !result.finished;
}

// Feeds the drafter the step's rows with the tokens that follow them, so that its window stays
// complete, and takes its proposals where one can be verified. A rejected row and a finished
// sequence's last one have no follower; what they leave is overwritten before anyone sees it.
void Stepper::draft(const std::vector<Part>& parts) {
  const bool going =
      std::any_of(parts.begin(), parts.end(), [](const Part& part) { return part.going; });
  if (runner_.limits().max_draft == 0 || !going) return;
  for (const Part& part : parts)
    for (int i = 0; i < part.segment.rows; ++i) {
      const std::vector<TokenId>& tokens = part.sequence->tokens;
      const auto next = static_cast<std::size_t>(part.segment.position + i + 1);
      ids_[static_cast<std::size_t>(part.segment.first_row + i)] =
          i < part.kept && next < tokens.size() ? tokens[next] : 0;
    }
  std::vector<const Part*> proposing;
  std::vector<engine::DraftRow> rows;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Part& part = parts[i];
    const Sequence& s = *part.sequence;
    const bool useful = part.going && !s.prefilling() && s.tokens_left() >= 2 &&
                        static_cast<int>(s.tokens.size()) + 1 <= runner_.info().max_model_len;
    if (!useful) continue;
    rows.push_back({static_cast<std::int32_t>(i), part.segment.first_row + part.kept - 1});
    proposing.push_back(&part);
  }
  const std::vector<TokenId> proposed = runner_.draft({ids_, segments_, pages_}, rows, 1);
  for (std::size_t i = 0; i < proposing.size(); ++i) proposing[i]->sequence->draft = proposed[i];
}

}  // namespace nibble::sched
