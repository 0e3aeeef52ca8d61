// A step model that computes nothing but remembers everything: whether a sequence's pages, rings and snapshots hold its own
// tokens shows in every token it draws.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/step_model.h"

namespace nibble::sched::testing {

// Its step costs are virtual: they pass on `now_ns`.
struct WitnessSpec {
  int slots = 4;
  int pages = 64;
  int max_step_rows = 64;
  int max_draft = 4;
  int max_model_len = 4096;
  double acceptance =
      0.8;             // share of drafted tokens that are the target's own, for greedy requests
  int eos_every = 50;  // one of so many draws ends the sequence; 0: none
  std::int64_t step_ns = 2'000'000;
  std::int64_t row_ns = 0;
  std::int64_t draft_ns = 0;  // for each drafted token of a step, whatever the number of sequences
};

// A page keeps the tokens of closed groups of four (as compressed entries do), a slot the last few tokens in a ring (as window
// and open state do). A token drawn after position t is a hash of the tokens 0 .. t as they are found there. What it finds
// wrong besides, like two sequences writing one page, is in problems().
class WitnessModel : public engine::StepModel {
 public:
  explicit WitnessModel(const WitnessSpec& spec);

  // What a request's answer has to be.
  std::vector<TokenId> answer(const Request& request) const;

  const std::vector<std::string>& problems() const { return problems_; }
  std::int64_t now_ns = 0;
  // Calls of any kind from now until one throws std::runtime_error; negative: never.
  int fail_after = -1;
  bool fail_for_good = false;  // it is DeviceLost then, and all later calls throw it too
  int drafter_calls = 0;

  const ModelInfo& info() const override { return info_; }
  const engine::CacheLimits& limits() const override { return limits_; }
  void forward(const ops::Batch& batch) override;
  std::vector<Result<GeneratedToken>> draw(std::span<const engine::DrawRow> rows) override;
  std::vector<GeneratedToken> score(std::int32_t begin, std::span<const TokenId> tokens,
                                    int alternatives) override;
  std::vector<TokenId> draft(const ops::Batch& batch, std::span<const engine::DraftRow> rows,
                             int depth) override;
  std::vector<std::byte> save(int slot, int position, std::int32_t page) override;
  void restore(int slot, int position, std::int32_t page,
               std::span<const std::byte> bytes) override;
  std::int64_t saved_bytes(int position) const override;
  std::vector<std::byte> save_page(std::int32_t page) override;
  void restore_page(std::int32_t page, std::span<const std::byte> bytes) override;
  std::int64_t page_bytes() const override;

 private:
  struct RingRow {
    int position = -1;
    TokenId token = -1;
  };

  void may_fail(const char* what);
  void problem(std::string text) { problems_.push_back(std::move(text)); }
  RingRow& ring(int slot, int position);
  TokenId& kept(std::int32_t page, int position);
  std::uint64_t hash_before(const ops::Batch& batch, const ops::Segment& segment, int position);
  void write(const ops::Batch& batch, const ops::Segment& segment, int position, TokenId token);
  void check_pages(const ops::Batch& batch);
  TokenId token_after(std::uint64_t hash, const SamplingParams& params) const;

  WitnessSpec spec_;
  ModelInfo info_;
  engine::CacheLimits limits_;
  std::vector<TokenId> pages_;
  std::vector<RingRow> rings_;
  std::vector<std::uint64_t> rows_;  // of the last step: hash of the tokens up to each
  std::vector<std::string> problems_;
};

}  // namespace nibble::sched::testing
