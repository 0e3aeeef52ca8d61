// Times a draw from one row of logits of a full-size vocabulary, for each way of sampling, on peaked and on flat rows.
// Each line: median and best time. The floor is one pass over the row.
//
//   sample_bench [--vocab 129280] [--draws 400]
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <random>
#include <vector>

#include "base/check.h"
#include "sample/sampler.h"

namespace nibble::bench {
namespace {

struct Case {
  const char* name;
  SamplingParams params;
};

std::vector<Case> cases() {
  SamplingParams greedy, plain;
  greedy.temperature = 0.0f;
  std::vector<Case> all = {{"greedy", greedy}, {"temperature 1", plain}};
  const auto add = [&](const char* name, SamplingParams params, auto change) {
    change(params);
    all.push_back({name, params});
  };
  add("top_p 0.95", plain, [](SamplingParams& p) { p.top_p = 0.95f; });
  add("top_k 20", plain, [](SamplingParams& p) { p.top_k = 20; });
  add("top_k 1000, top_p 0.95", plain, [](SamplingParams& p) { p.top_k = 1000, p.top_p = 0.95f; });
  add("min_p 0.05", plain, [](SamplingParams& p) { p.min_p = 0.05f; });
  add("penalties, temperature 1", plain,
      [](SamplingParams& p) { p.presence_penalty = 0.5f, p.repetition_penalty = 1.1f; });
  add("greedy, 20 log-probabilities", greedy, [](SamplingParams& p) { p.logprobs = 20; });
  return all;
}

// Normal logits; a peaked row's spread is wider, and a few stand out.
std::vector<float> row(std::size_t vocab, bool peaked) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.0f, peaked ? 3.0f : 1.0f);
  std::vector<float> logits(vocab);
  for (float& logit : logits) logit = normal(random);
  for (int i = 0; peaked && i < 50; ++i) logits[random() % vocab] += 12.0f;
  return logits;
}

void time_draws(const char* kind, const std::vector<float>& logits, const Case& one, int draws) {
  sample::TokenCounts seen;  // a conversation of 4,500 tokens
  for (std::size_t i = 0; i < 4500; ++i)
    seen.add_generated(static_cast<TokenId>(i * i % logits.size()));
  std::vector<double> times_us;
  for (int i = 0; i < draws; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const auto token = sample::draw(logits, {&one.params, static_cast<std::uint64_t>(i), &seen});
    const auto end = std::chrono::steady_clock::now();
    NIBBLE_CHECK(token.ok(), "{}", token.status().message);
    times_us.push_back(std::chrono::duration<double, std::micro>(end - start).count());
  }
  std::sort(times_us.begin(), times_us.end());
  fmt::print("{:<7} {:<30} {:8.1f} us median {:8.1f} us best\n", kind, one.name,
             times_us[times_us.size() / 2], times_us[0]);
}

}  // namespace
}  // namespace nibble::bench

int main(int argc, char** argv) {
  std::size_t vocab = 129280;
  int draws = 400;
  CLI::App app("times draws of a token");
  app.add_option("--vocab", vocab, "logits a row")->check(CLI::Range(100, 1 << 24));
  app.add_option("--draws", draws, "of each kind")->check(CLI::Range(1, 1 << 20));
  CLI11_PARSE(app, argc, argv);
  for (const bool peaked : {true, false}) {
    const std::vector<float> logits = nibble::bench::row(vocab, peaked);
    for (const nibble::bench::Case& one : nibble::bench::cases())
      nibble::bench::time_draws(peaked ? "peaked" : "flat", logits, one, draws);
  }
  return 0;
}
