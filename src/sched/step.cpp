#include "sched/step.h"

#include <algorithm>
#include <array>

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

StepResult Stepper::advance(Sequence& s) {
  StepResult result;
  if (s.prefilling())
    prefill(s, result);
  else
    decode(s, result);
  return result;
}

void Stepper::prefill(Sequence& s, StepResult& result) {
  const int begin = s.device_len;
  const int rows = std::min(prefill_chunk_, s.prompt_len() - begin);
  const std::array segments{ops::Segment{0, rows, s.slot, begin}};
  runner_.forward(
      {std::span(s.tokens).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(rows)),
       segments});
  s.device_len += rows;
  if (s.request.prompt_logprobs) append_prompt_logprobs(s, rows);
  if (!s.prefilling()) {
    result.prompt = std::move(s.prompt_logprobs);
    if (s.request.sampling.max_tokens == 0) {
      result.finished = FinishReason::kLength;
      return;
    }
    if (!generate(s, runner_.logits(rows - 1, 1), result)) return;
  }
  draft(s, begin, rows);
}

void Stepper::append_prompt_logprobs(Sequence& s, int rows) {
  const int begin = s.device_len - rows, count = s.request.sampling.logprobs;
  if (begin == 0) s.prompt_logprobs.push_back({s.tokens[0], std::nullopt, {}});
  // Row i holds the distribution of the token after it; the last prompt token's row belongs to the
  // first new token.
  const int known = std::min(rows, s.prompt_len() - 1 - begin);
  if (known <= 0) return;
  const std::span<const float> logits = runner_.logits(0, known);
  for (int i = 0; i < known; ++i)
    s.prompt_logprobs.push_back(with_logprobs(s.tokens[static_cast<std::size_t>(begin + i + 1)],
                                              row(logits, i, runner_.info().vocab_size),
                                              std::max(count, 0)));
}

void Stepper::decode(Sequence& s, StepResult& result) {
  const int begin = s.device_len, vocab = runner_.info().vocab_size;
  NIBBLE_CHECK(begin + 1 == static_cast<int>(s.tokens.size()), "cached {} of {} tokens", begin,
               s.tokens.size());
  std::vector<TokenId> ids = {s.tokens.back()};
  if (s.draft) ids.push_back(*s.draft);
  const int rows = static_cast<int>(ids.size());
  const std::array segments{ops::Segment{0, rows, s.slot, begin}};
  runner_.forward({ids, segments});
  const std::span<const float> logits = runner_.logits(0, rows);

  int kept = 1;  // rows whose token turned out to be the sequence's own
  bool going = generate(s, row(logits, 0, vocab), result);
  if (s.draft) {
    ++s.usage.drafted_tokens;
    if (going && s.tokens.back() == *s.draft) {
      ++s.usage.accepted_tokens;
      kept = 2;
      going = generate(s, row(logits, 1, vocab), result);
    }
  }
  s.draft.reset();
  s.device_len += kept;  // a rejected row is forgotten by not counting it
  if (going) draft(s, begin, kept);
}

bool Stepper::generate(Sequence& s, std::span<const float> logits, StepResult& result) {
  const SamplingParams& params = s.request.sampling;
  const Result<TokenId> token = sample::sample(logits, params, s.tokens.size());
  if (!token) {
    result.finished = FinishReason::kError;
    result.error = token.status();
    return false;
  }
  if (*token == runner_.info().eos_token && !params.ignore_eos) {
    result.finished = FinishReason::kStop;
    return false;
  }
  s.tokens.push_back(*token);
  ++s.usage.completion_tokens;
  result.tokens.push_back(with_logprobs(*token, logits, params.logprobs));
  if (s.tokens_left() == 0) result.finished = FinishReason::kLength;
  return !result.finished;
}

// Feeds the drafter the rows of the last target step (positions first_position ..) with the tokens
// that follow them, so that its window stays complete, and takes its proposal where one can be
// verified.
void Stepper::draft(Sequence& s, int first_position, int rows) {
  if (!runner_.drafts()) return;
  const std::array segments{ops::Segment{0, rows, s.slot, first_position}};
  runner_.forward_drafter({std::span(s.tokens).subspan(static_cast<std::size_t>(first_position) + 1,
                                                       static_cast<std::size_t>(rows)),
                           segments},
                          0);
  const bool useful = !s.prefilling() && s.tokens_left() >= 2 &&
                      static_cast<int>(s.tokens.size()) + 1 <= runner_.info().max_model_len;
  if (!useful) return;
  SamplingParams greedy = s.request.sampling;
  greedy.temperature = 0.0f;
  const Result<TokenId> token = sample::sample(runner_.drafter_logits(rows - 1), greedy, 0);
  if (token) s.draft = *token;
}

}  // namespace nibble::sched
