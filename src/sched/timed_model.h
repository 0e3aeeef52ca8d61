// A step model that measures how long its calls take: what is left of a step is the scheduler's own work.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "engine/step_model.h"

namespace nibble::sched {

class TimedModel : public engine::StepModel {
  template <typename Call>
  auto timed(Call call) {
    struct Timer {
      TimedModel& self;
      std::int64_t start;
      ~Timer() { self.spent_ += self.clock_() - start; }
    } timer{*this, clock_()};
    return call();
  }

 public:
  using Clock = std::function<std::int64_t()>;  // nanoseconds

  // Borrows the model.
  TimedModel(engine::StepModel& model, Clock clock) : model_(model), clock_(std::move(clock)) {}

  std::int64_t spent_ns() const { return spent_; }

  const ModelInfo& info() const override { return model_.info(); }
  const engine::CacheLimits& limits() const override { return model_.limits(); }
  void forward(const ops::Batch& batch) override {
    timed([&] { model_.forward(batch); });
  }
  std::vector<Result<GeneratedToken>> draw(std::span<const engine::DrawRow> rows) override {
    return timed([&] { return model_.draw(rows); });
  }
  std::vector<GeneratedToken> score(std::int32_t begin, std::span<const TokenId> tokens,
                                    int alternatives) override {
    return timed([&] { return model_.score(begin, tokens, alternatives); });
  }
  std::vector<TokenId> draft(const ops::Batch& batch, std::span<const engine::DraftRow> rows,
                             int depth) override {
    return timed([&] { return model_.draft(batch, rows, depth); });
  }
  std::vector<std::byte> save(int slot, int position, std::int32_t page) override {
    return timed([&] { return model_.save(slot, position, page); });
  }
  void restore(int slot, int position, std::int32_t page,
               std::span<const std::byte> bytes) override {
    timed([&] { model_.restore(slot, position, page, bytes); });
  }
  std::int64_t saved_bytes(int position) const override { return model_.saved_bytes(position); }
  std::vector<std::byte> save_page(std::int32_t page) override {
    return timed([&] { return model_.save_page(page); });
  }
  void restore_page(std::int32_t page, std::span<const std::byte> bytes) override {
    timed([&] { model_.restore_page(page, bytes); });
  }
  std::int64_t page_bytes() const override { return model_.page_bytes(); }

 private:
  engine::StepModel& model_;
  Clock clock_;
  std::int64_t spent_ = 0;
};

}  // namespace nibble::sched
