// The passes of row_scan.h, compiled for one kind of processor.
#pragma once

#include "sample/row_scan.h"

namespace nibble::sample {

struct RowPasses {
  RowRange (*row_range)(std::span<const float>);
  std::size_t (*next_at_least)(std::span<const float>, std::size_t, float);
  std::size_t (*count_at_least)(std::span<const float>, float);
  double (*exp_sum)(std::span<const float>, float);
  void (*fill_buckets)(std::span<const float>, const BucketRule&, std::span<std::uint16_t>,
                       std::array<double, kBuckets + 1>&);
};

const RowPasses& portable_passes();
#if defined(__x86_64__)
const RowPasses& avx2_passes();
#endif

}  // namespace nibble::sample
