// What the scheduler drives: a model that runs one step of many sequences, draws tokens, drafts, and puts a sequence's state
// aside. No logits and no tensors pass this line, so that they may stay on a device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "nibble/engine.h"
#include "ops/batch.h"
#include "sample/sampler.h"

namespace nibble::engine {

// What the caches were made for; fixed at load.
struct CacheLimits {
  int slots = 0;          // sequences that run together: each has one slot's rings
  int pages = 0;          // of ops::kPageTokens tokens each, shared by all sequences
  int max_step_rows = 0;  // rows of a step, all sequences together
  int max_draft = 0;      // tokens that a step may verify after a sequence's own; 0: no drafter
};

// A token to draw from a row of the last forward().
struct DrawRow {
  std::int32_t row = 0;
  sample::Draw draw;
};

// A sequence to draft for: the row of the last forward() that holds its last known token's predecessor, that is the last row
// that was kept, and the segment that row is in.
struct DraftRow {
  std::int32_t segment = 0;
  std::int32_t row = 0;
};

// Thread: the scheduler's. Failure: exceptions of the backend (out of memory, a device that is gone); a row that cannot be
// drawn from is an error of that row alone.
class StepModel {
 public:
  StepModel() = default;
  virtual ~StepModel() = default;
  StepModel(const StepModel&) = delete;
  StepModel& operator=(const StepModel&) = delete;

  virtual const ModelInfo& info() const = 0;
  virtual const CacheLimits& limits() const = 0;

  // Runs the batch through the target and writes its rows into the caches. Positions continue each slot's sequence, or go
  // back by at most ops::kDraftSlack tokens: what lay behind is forgotten.
  virtual void forward(const ops::Batch& batch) = 0;

  // One result a row, in their order. Rows are of the last forward().
  virtual std::vector<Result<GeneratedToken>> draw(std::span<const DrawRow> rows) = 0;

  // Log-probabilities of tokens[i] by row begin + i of the last forward(), with the `alternatives` most likely.
  virtual std::vector<GeneratedToken> score(std::int32_t begin, std::span<const TokenId> tokens,
                                            int alternatives) = 0;

  // Shows the drafter the last step: `batch` has its segments, with the tokens that FOLLOW each row as ids (any id where none
  // is known: the row is overwritten before it is used). Then proposes `depth` tokens, 0 to limits().max_draft, for each of
  // `rows`: proposals of rows[i] are [i * depth, (i + 1) * depth). Nothing proposed with depth 0.
  virtual std::vector<TokenId> draft(const ops::Batch& batch, std::span<const DraftRow> rows,
                                     int depth) = 0;

  // What the sequence of `position` tokens in `slot` keeps besides its full pages: window rows, open compressor state, the
  // drafter's, and the entries of its open page, which is `page` (ignored where position is a multiple of ops::kPageTokens).
  // position may lie up to ops::kDraftSlack tokens behind what the slot has seen. Host bytes, for restore() of this model only.
  virtual std::vector<std::byte> save(int slot, int position, std::int32_t page) = 0;
  virtual void restore(int slot, int position, std::int32_t page,
                       std::span<const std::byte> bytes) = 0;
  // Bytes that save() returns at this position.
  virtual std::int64_t saved_bytes(int position) const = 0;

  // A full page's rows as host bytes, page_bytes() of them, and back into any page.
  virtual std::vector<std::byte> save_page(std::int32_t page) = 0;
  virtual void restore_page(std::int32_t page, std::span<const std::byte> bytes) = 0;
  virtual std::int64_t page_bytes() const = 0;
};

}  // namespace nibble::engine
