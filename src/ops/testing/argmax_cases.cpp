// argmax_rows: an id, so equal to the last bit, and known beforehand where a case says so.
#include <fmt/format.h>

#include <limits>

#include "ops/argmax.h"
#include "ops/testing/op_table.h"

namespace nibble::ops::testing {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

Ints run_case(OpTable& table, const char* what, const Floats& x, std::int64_t n) {
  const auto width = static_cast<std::int64_t>(x.size()) / std::max<std::int64_t>(n, 1);
  table.begin("argmax_rows", fmt::format("{}, {} rows of {}", what, n, width));
  const auto [found, expected] = table.both([&](Backend& b) {
    const tensor::View best = poisoned_ints(b, {n});
    b.argmax_rows({put(b, x, {n, width}), best});
    return ints_of(b, best);
  });
  table.check_equal("best", found, expected);
  return found;
}

void random_case(OpTable& table, std::int64_t n, std::int64_t width) {
  run_case(table, "random", table.normal(n * width), n);
  // Few values, so that most rows tie.
  Floats tied(static_cast<std::size_t>(n * width));
  for (float& x : tied) x = static_cast<float>(table.integer(-1, 1));
  run_case(table, "ties", tied, n);
}

}  // namespace

void argmax_cases(OpTable& table) {
  for (const std::int64_t width : {1, 7, 8, 33, 1000, 1024, 1025, 5003, 40000})
    random_case(table, width > 5000 ? 3 : 9, width);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const struct {
    const char* what;
    Floats row;
    std::int32_t best;
  } rows[] = {
      {"0 and -0 are equal", {-1.0f, -0.0f, 0.0f, -0.0f}, 1},
      {"-inf is no obstacle", {-kInf, -kInf, -3.0f, -kInf}, 2},
      {"the smallest numbers", {-1e-45f, 0.0f, 1e-45f, 1e-45f}, 2},
      {"the largest numbers", {-3e38f, 3.4e38f, 3.3e38f, 3.4e38f}, 1},
      {"a NaN", {1.0f, 9.0f, nan, 0.0f}, kNoBest},
      {"a NaN with its sign set", {-nan, 9.0f, 1.0f, 0.0f}, kNoBest},
      {"infinity", {1.0f, kInf, 2.0f, kInf}, kNoBest},
      {"nothing but -inf", {-kInf, -kInf, -kInf, -kInf}, kNoBest},
  };
  for (const auto& [what, row, best] : rows) {
    // Far into a long row, and other rows beside it: what is special stays its own.
    const std::size_t before = 1500;
    Floats x(before, -kInf);
    x.insert(x.end(), row.begin(), row.end());
    const std::size_t width = x.size();
    for (const std::size_t neighbour : {1u, 2u}) {
      x.insert(x.end(), width, -1.0f);
      x[neighbour * width + 20] = 0.5f;
    }
    const Ints found = run_case(table, what, x, 3);
    const std::int32_t at = best == kNoBest ? kNoBest : static_cast<std::int32_t>(before) + best;
    table.check_equal("best", found, Ints{at, 20, 20});
  }
}

}  // namespace nibble::ops::testing
