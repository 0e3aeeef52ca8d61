#include "sched/step.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"

namespace nibble::sched {

std::vector<PartResult> Stepper::run(std::span<const Part> parts, int drafts) {
  std::vector<PartResult> results(parts.size());
  forward(parts);
  draw(parts, results);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    Sequence& s = *parts[i].sequence;
    s.drafts.clear();
    s.device_len += rows_[i].kept;
  }
  if (drafts != kNoDrafter) draft(parts, drafts);
  for (std::size_t i = 0; i < parts.size() && drafts == kNoDrafter; ++i)
    parts[i].sequence->drafter_from = parts[i].sequence->device_len;
  return results;
}

void Stepper::forward(std::span<const Part> parts) {
  ids_.clear();
  segments_.clear();
  pages_.clear();
  rows_.clear();
  for (const Part& part : parts) {
    const Sequence& s = *part.sequence;
    NIBBLE_CHECK(part.rows > 0 && part.drafts() <= static_cast<int>(s.drafts.size()),
                 "{} rows, {} known, {} drafts", part.rows, s.to_compute(), s.drafts.size());
    const Rows rows{.first = static_cast<int>(ids_.size()),
                    .begin = s.device_len,
                    .known = std::min(part.rows, s.to_compute()),
                    .drafts = part.drafts(),
                    .completes = part.completes()};
    segments_.push_back(
        {rows.first, part.rows, s.slot, s.device_len, static_cast<std::int32_t>(pages_.size())});
    rows_.push_back(rows);
    const auto known = s.tokens.begin() + s.device_len;
    ids_.insert(ids_.end(), known, known + rows.known);
    ids_.insert(ids_.end(), s.drafts.begin(), s.drafts.begin() + rows.drafts);
    pages_.insert(pages_.end(), s.pages.begin(), s.pages.end());
  }
  model_.forward({ids_, segments_, pages_});
}

// One draw for the token behind the known ones and one behind each draft, all before it is known which drafts are right.
void Stepper::draw(std::span<const Part> parts, std::vector<PartResult>& results) {
  draws_.clear();
  std::vector<std::size_t> first(parts.size());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Sequence& s = *parts[i].sequence;
    first[i] = draws_.size();
    if (!rows_[i].completes || s.tokens_left() == 0) continue;
    const std::span<const TokenId> drafts(s.drafts);
    for (int j = 0; j <= rows_[i].drafts; ++j) {
      const auto ahead = static_cast<std::size_t>(j);
      sample::Draw draw;
      draw.params = &s.request.sampling;
      draw.position = s.tokens.size() + ahead;
      draw.seen = &s.seen;
      draw.drafted = drafts.first(ahead);
      draws_.push_back({rows_[i].first + rows_[i].known - 1 + j, draw});
    }
  }
  drawn_ = model_.draw(draws_);
  for (std::size_t i = 0; i < parts.size(); ++i)
    append(*parts[i].sequence, rows_[i], first[i], results[i]);
}

void Stepper::append(Sequence& s, Rows& rows, std::size_t first_draw, PartResult& result) {
  rows.kept = rows.known;
  rows.going = true;
  if (s.request.prompt_logprobs && s.usage.completion_tokens == 0) score_prompt(s, rows, result);
  if (!rows.completes) return;
  if (s.tokens_left() == 0) {
    result.finished = FinishReason::kLength;
    rows.going = false;
    return;
  }
  rows.going = take(s, drawn_[first_draw], result);
  s.usage.drafted_tokens += rows.drafts;
  while (rows.going && result.accepted < rows.drafts &&
         s.tokens.back() == s.drafts[static_cast<std::size_t>(result.accepted)]) {
    ++result.accepted;
    ++s.usage.accepted_tokens;
    ++rows.kept;
    rows.going = take(s, drawn_[first_draw + static_cast<std::size_t>(result.accepted)], result);
  }
}

void Stepper::score_prompt(Sequence& s, const Rows& rows, PartResult& result) {
  auto& scored = s.prompt_logprobs;
  if (scored.empty()) scored.push_back({s.tokens[0], std::nullopt, {}});
  // Row i holds the distribution of the token after it; the last prompt token's row belongs to the first new token. After a
  // preemption rows come a second time.
  const int from = std::max(rows.begin, static_cast<int>(scored.size()) - 1);
  const int to = std::min(rows.begin + rows.known, s.prompt_len() - 1);
  if (from < to) {
    const std::span<const TokenId> tokens(s.tokens);
    std::vector<GeneratedToken> more = model_.score(
        rows.first + from - rows.begin,
        tokens.subspan(static_cast<std::size_t>(from) + 1, static_cast<std::size_t>(to - from)),
        std::max(s.request.sampling.logprobs, 0));
    std::move(more.begin(), more.end(), std::back_inserter(scored));
  }
  if (rows.completes) result.prompt = std::move(scored);
}

// False: finished.
bool Stepper::take(Sequence& s, Result<GeneratedToken>& token, PartResult& result) {
  if (!token) {
    result.finished = FinishReason::kError;
    result.error = token.status();
    return false;
  }
  if (token->token == model_.info().eos_token && !s.request.sampling.ignore_eos) {
    result.finished = FinishReason::kStop;
    return false;
  }
  s.tokens.push_back(token->token);
  if (sample::uses_counts(s.request.sampling)) s.seen.add_generated(token->token);
  ++s.usage.completion_tokens;
  result.tokens.push_back(std::move(*token));
  if (s.tokens_left() == 0) result.finished = FinishReason::kLength;
  return !result.finished;
}

// Shows the drafter the step's rows with the tokens that follow them, so that its window stays complete, and takes its
// proposals where they can be verified. A rejected row and a finished sequence's last one have no follower; what they leave
// is overwritten before anyone sees it.
void Stepper::draft(std::span<const Part> parts, int drafts) {
  draft_rows_.clear();
  drafting_.clear();
  for (std::size_t i = 0; i < parts.size(); ++i) {
    Sequence& s = *parts[i].sequence;
    const Rows& rows = rows_[i];
    for (int j = 0; j < parts[i].rows; ++j) {
      const auto next = static_cast<std::size_t>(rows.begin + j + 1);
      ids_[static_cast<std::size_t>(rows.first + j)] =
          j < rows.kept && next < s.tokens.size() ? s.tokens[next] : 0;
    }
    const bool useful = rows.going && rows.completes && s.tokens_left() >= 2;
    if (drafts == 0 || !useful) continue;
    draft_rows_.push_back({static_cast<std::int32_t>(i), rows.first + rows.kept - 1});
    drafting_.push_back(&s);
  }
  const std::vector<TokenId> proposed =
      model_.draft({ids_, segments_, pages_}, draft_rows_, drafts);
  for (std::size_t i = 0; i < drafting_.size(); ++i) {
    Sequence& s = *drafting_[i];
    const auto begin = proposed.begin() + static_cast<std::ptrdiff_t>(i) * drafts;
    // The last token is the target's own.
    s.drafts.assign(begin, begin + std::min(drafts, s.tokens_left() - 1));
  }
}

}  // namespace nibble::sched
