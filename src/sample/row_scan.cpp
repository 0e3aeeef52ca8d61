#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>

#include "sample/row_passes.h"
#include "sample/row_scan.h"

namespace nibble::sample {
namespace {

#include "sample/row_scan_body.h"

const RowPasses& passes() {
#if defined(__x86_64__)
  static const bool avx2 = __builtin_cpu_supports("avx2");
  if (avx2) return avx2_passes();
#endif
  return portable_passes();
}

}  // namespace

const RowPasses& portable_passes() {
  return kPasses;
}

RowRange row_range(std::span<const float> row) {
  return passes().row_range(row);
}

std::size_t next_at_least(std::span<const float> row, std::size_t from, float floor) {
  return passes().next_at_least(row, from, floor);
}

std::size_t count_at_least(std::span<const float> row, float floor) {
  return passes().count_at_least(row, floor);
}

double exp_sum(std::span<const float> row, float top) {
  return passes().exp_sum(row, top);
}

void fill_buckets(std::span<const float> row, const BucketRule& rule,
                  std::span<std::uint16_t> bucket, std::array<double, kBuckets + 1>& mass) {
  passes().fill_buckets(row, rule, bucket, mass);
}

}  // namespace nibble::sample
