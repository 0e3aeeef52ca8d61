// What steps cost, learnt from those that ran, and what follows from it: how many prompt tokens fit into a step, and how many
// drafted tokens pay.
#pragma once

#include <array>
#include <map>

namespace nibble::sched {

// What a step was made of.
struct StepShape {
  int decoding = 0;  // sequences past their prompt
  int verified = 0;  // drafted tokens each of them brought
  int drafted = 0;   // tokens drafted for each afterwards
  int prefill = 0;   // prompt tokens
};

// One thread. Deterministic: the same observations give the same choices.
class StepCost {
 public:
  void observe(const StepShape& shape, double ms);
  // A sequence's verification: of `proposed` drafted tokens the first `accepted` were right.
  void observe_drafts(int proposed, int accepted);

  // How many prompt tokens a step with these decoding sequences can take within budget_ms: at least a few, so that prompts get
  // on, and at most `most`. Starts small and grows as it learns.
  int prefill_tokens(int decoding, int drafts, double budget_ms, int most) const;

  // How many tokens to draft for `decoding` sequences, 0 to most: what gives the most tokens a second, by the acceptance and the
  // step times seen so far. Tries what was not tried while it may pay, and now and then again.
  int draft_depth(int decoding, int most);

  // Chance that the i-th drafted token is right when those before it were.
  double acceptance(int i) const { return accepted_[static_cast<std::size_t>(i)]; }

  static constexpr int kMaxDepth = 8;

 private:
  // The median of the last few: a step that lost its CPU for a while says nothing about the next.
  struct Recent {
    std::array<double, 8> values{};
    int count = 0;    // ever added
    double ms = 0.0;  // the median
    void add(double value);
  };
  // Steps without prompts, of about as many sequences.
  struct Decode {
    std::array<Recent, kMaxDepth + 1> by_depth;
    int trial = -1;      // depth being tried
    int trial_left = 0;  // for so many more steps
    int steps = 0;       // decided
    int rechecks = 0;
  };

  const Recent* decode_ms(int decoding, int depth) const;
  double expected_tokens(int depth) const;
  int to_try(const Decode& cell, int best, int most) const;
  int best_known(const Decode& cell, int most) const;

  std::map<int, Decode> decodes_;   // by bucket of `decoding`
  std::array<Recent, 32> prefill_;  // ms a token, by the logarithm of the chunk
  std::array<double, kMaxDepth> accepted_ = {0.8, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8};
};

}  // namespace nibble::sched
