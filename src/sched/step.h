// Advances one sequence by one step: a prefill chunk, or a decode with the verification of its
// draft.
#pragma once

#include "engine/model_runner.h"
#include "sched/sequence.h"

namespace nibble::sched {

struct StepResult {
  std::vector<GeneratedToken> tokens;    // newly generated, in order
  std::vector<GeneratedToken> prompt;    // the whole prompt's log-probabilities, once
  std::optional<FinishReason> finished;  // kStop, kLength or kError
  Status error;                          // with kError
};

// A draft is accepted exactly when the target, sampling that position with the request's own
// parameters and random number, draws the same token. So drafting changes how many steps a reply
// takes and never a token of it.
class Stepper {
 public:
  // Borrows the runner. prefill_chunk: prompt tokens a step, at most runner.max_step_rows().
  Stepper(engine::ModelRunner& runner, int prefill_chunk)
      : runner_(runner), prefill_chunk_(prefill_chunk) {}

  StepResult advance(Sequence& sequence);

 private:
  void prefill(Sequence& s, StepResult& result);
  void decode(Sequence& s, StepResult& result);
  void append_prompt_logprobs(Sequence& s, int rows);
  // Samples the token at position s.tokens.size() from a row of logits, appends it and reports it.
  // False: finished.
  bool generate(Sequence& s, std::span<const float> logits, StepResult& result);
  void draft(Sequence& s, int first_position, int rows);

  engine::ModelRunner& runner_;
  int prefill_chunk_;
};

}  // namespace nibble::sched
