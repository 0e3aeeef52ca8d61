// Advances sequences together by one step: prompts by a chunk, the others by a token and the
// verification of their draft, all in one forward pass.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "engine/model_runner.h"
#include "sched/sequence.h"

namespace nibble::sched {

// What a step did to one sequence; empty when it had no part in it.
struct StepResult {
  std::vector<GeneratedToken> tokens;    // newly generated, in order
  std::vector<GeneratedToken> prompt;    // the whole prompt's log-probabilities, once
  std::optional<FinishReason> finished;  // kStop, kLength or kError
  Status error;                          // with kError
};

// A draft is accepted exactly when the target, sampling that position with the request's own
// parameters and random number, draws the same token. So drafting changes how many steps a reply
// takes and never a token of it; nor does company, since every op's row depends on its own sequence
// alone.
class Stepper {
 public:
  // Borrows the runner. prefill_chunk: prompt tokens a step.
  Stepper(engine::ModelRunner& runner, int prefill_chunk);

  // Slots that have pages for a whole context; slot s has pages s * n to (s + 1) * n - 1.
  int slots() const {
    return std::min(runner_.limits().slots, runner_.limits().pages / pages_per_slot_);
  }

  // None of the sequences has finished, no two have the same slot. Every one that is past its prompt
  // takes part; those within it share prefill_chunk tokens, first come first served in the order
  // given. Result i belongs to sequence i. What the forward pass throws concerns them all.
  std::vector<StepResult> advance(std::span<Sequence* const> sequences);

 private:
  // A sequence's rows of the step.
  struct Part {
    Sequence* sequence;
    StepResult* result;
    ops::Segment segment;
    bool decodes;
    int kept = 0;        // rows that turned out to be the sequence's own
    bool going = false;  // not finished by this step
  };

  std::vector<Part> parts_of(std::span<Sequence* const> sequences,
                             std::vector<StepResult>& results) const;
  void forward(const std::vector<Part>& parts);
  void verify(Part& part, std::span<const float> logits);
  void finish_chunk(Part& part);
  void append_prompt_logprobs(const Part& part);
  // Samples the token at position s.tokens.size() from a row of logits, appends it and reports it.
  // False: finished.
  bool generate(Sequence& s, std::span<const float> logits, StepResult& result);
  void draft(const std::vector<Part>& parts);

  engine::ModelRunner& runner_;
  int prefill_chunk_;
  int pages_per_slot_;
  std::vector<TokenId> ids_;
  std::vector<ops::Segment> segments_;
  std::vector<std::int32_t> pages_;  // 0, 1, 2, ...
};

}  // namespace nibble::sched
