// Runs one step: known tokens and drafts of many sequences in one forward pass, then new tokens and new drafts.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "engine/step_model.h"
#include "sched/sequence.h"

namespace nibble::sched {

// A sequence's rows of the step: from its device_len on, known tokens and then drafts. A sequence occurs once in a step.
struct Part {
  Sequence* sequence = nullptr;
  int rows = 0;

  int drafts() const { return std::max(0, rows - sequence->to_compute()); }
  bool completes() const { return rows >= sequence->to_compute(); }  // a new token follows
};

// What a step did to one sequence.
struct PartResult {
  std::vector<GeneratedToken> tokens;    // newly generated, in order
  std::vector<GeneratedToken> prompt;    // the whole prompt's log-probabilities, once
  std::optional<FinishReason> finished;  // kStop, kLength or kError
  Status error;                          // with kError
  int accepted = 0;                      // of the part's drafts
};

// A draft is accepted exactly when the target, sampling that position with the request's own parameters and random number,
// draws the same token. Since a draft is one token and no distribution, this is exact rejection sampling: it is accepted with the
// probability the target gives it, and a rejection leaves the target's own draw. So drafting changes how many steps a reply
// takes and never a token of it; nor does company, since every op's row depends on its own sequence alone.
class Stepper {
 public:
  // Borrows the model.
  explicit Stepper(engine::StepModel& model) : model_(model) {}

  // Advances each part's sequence; result i belongs to part i. `drafts`: tokens to propose for each sequence that goes on;
  // kNoDrafter leaves the drafter out, which then does not know these tokens. What the model throws concerns them all.
  static constexpr int kNoDrafter = -1;
  std::vector<PartResult> run(std::span<const Part> parts, int drafts);

 private:
  // A part's place in the batch, and what became of it.
  struct Rows {
    int first = 0;
    int begin = 0;  // device_len before
    int known = 0;  // rows of known tokens
    int drafts = 0;
    bool completes = false;
    int kept = 0;  // rows that turned out to be the sequence's own
    bool going = false;
  };

  void forward(std::span<const Part> parts);
  void draw(std::span<const Part> parts, std::vector<PartResult>& results);
  void append(Sequence& s, Rows& rows, std::size_t first_draw, PartResult& result);
  void score_prompt(Sequence& s, const Rows& rows, PartResult& result);
  bool take(Sequence& s, Result<GeneratedToken>& token, PartResult& result);
  void draft(std::span<const Part> parts, int drafts);

  engine::StepModel& model_;
  std::vector<TokenId> ids_;
  std::vector<ops::Segment> segments_;
  std::vector<std::int32_t> pages_;
  std::vector<Rows> rows_;
  std::vector<engine::DrawRow> draws_;
  std::vector<Result<GeneratedToken>> drawn_;
  std::vector<engine::DraftRow> draft_rows_;
  std::vector<Sequence*> drafting_;
};

}  // namespace nibble::sched
