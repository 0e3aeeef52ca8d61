// A decoder that computes nothing and takes a known time: for measuring and testing what stands around a model.
#pragma once

#include <functional>
#include <vector>

#include "engine/step_model.h"

namespace nibble::engine::testing {

struct FixedCostOptions {
  // forward() takes base_us + per_row_us * rows, draft() draft_us * depth.
  double base_us = 0.0;
  double per_row_us = 0.0;
  double draft_us = 0.0;
  double acceptance = 0.8;  // share of proposals that are what the model draws, each by itself
  CacheLimits limits;
  int max_model_len = 4096;
  int vocab_size = 0;
  TokenId bos_token = 0;
  TokenId eos_token = 1;
  std::vector<TokenId> alphabet;  // what is drawn: at least two different ids, without eos_token
  // Spends so many microseconds; null: sleeps, the core is free for others meanwhile.
  std::function<void(double us)> spend;
  // Told at each forward() how much CPU time its caller has used since the last one, the model's own calls left out; may be
  // null.
  std::function<void(std::int64_t rows, double cpu_us)> on_step;
};

// The token after a sequence is a function of all tokens before it (a hash of them) and of nothing else: not of slot, pages,
// batch, chunking, drafts, temperature or seed. So a scheduler that mixes up sequences, or loses a token, shows in the text.
// A draw with `allowed` takes the first allowed id from there on. Log-probabilities are those of an even choice from the
// alphabet. Breaking StepModel's contract (a position that does not continue its slot's sequence, a row or slot out of
// range) ends the process.
class FixedCostModel final : public StepModel {
 public:
  explicit FixedCostModel(FixedCostOptions options);

  const ModelInfo& info() const override { return info_; }
  const CacheLimits& limits() const override { return options_.limits; }
  void forward(const ops::Batch& batch) override;
  std::vector<Result<GeneratedToken>> draw(std::span<const DrawRow> rows) override;
  std::vector<GeneratedToken> score(std::int32_t begin, std::span<const TokenId> tokens,
                                    int alternatives) override;
  std::vector<TokenId> draft(const ops::Batch& batch, std::span<const DraftRow> rows,
                             int depth) override;
  std::vector<std::byte> save(int slot, int position, std::int32_t page) override;
  void restore(int slot, int position, std::int32_t page,
               std::span<const std::byte> bytes) override;
  std::int64_t saved_bytes(int position) const override;
  // Nothing of a sequence is in its pages; a byte stands for what would be.
  std::vector<std::byte> save_page(std::int32_t page) override;
  void restore_page(std::int32_t page, std::span<const std::byte> bytes) override;
  std::int64_t page_bytes() const override { return 1; }

  // The answer to a prompt, without a scheduler: what every right one must give.
  static std::vector<TokenId> continuation(const std::vector<TokenId>& alphabet,
                                           std::span<const TokenId> prompt, int tokens);

 private:
  // A sequence as hashes of its beginnings: hash i stands for its first i tokens. A ring, long enough for one step and what
  // may be taken back.
  struct Slot {
    std::vector<std::uint64_t> hashes;
    int length = 0;  // tokens seen
    int oldest = 0;  // shortest beginning whose hash is still there
  };

  std::uint64_t& hash_at(int slot, int length);
  // The hash of the first `length` tokens, which may end up to `behind` tokens before what the slot has seen.
  std::uint64_t known_hash(int slot, int length, int behind);
  std::uint64_t row_hash(std::int32_t row) const;
  TokenId token_after(std::uint64_t hash) const;
  GeneratedToken with_logprobs(TokenId token, int alternatives) const;
  void spend(double us);

  FixedCostOptions options_;
  ModelInfo info_;
  std::vector<Slot> slots_;
  std::vector<std::uint64_t> row_hashes_;  // of the last forward()
  std::vector<int> row_positions_;
  double model_cpu_s_ = 0.0;  // of the calling thread, inside the model, since the last forward()
  double last_forward_cpu_s_ = 0.0;
};

}  // namespace nibble::engine::testing
