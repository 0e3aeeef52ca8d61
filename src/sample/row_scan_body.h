// The passes of row_scan.h in plain loops, for a source file to include after it has said which instructions
// they may become. Sums run in lanes that the code fixes, and nothing is contracted: the same bits from all.

// Rows are cut so that what a block computes stays in the first cache.
constexpr std::size_t kBlock = 256;
constexpr std::size_t kLanes = 16;

// e^x: x = k ln 2 + r with |r| <= ln 2 / 2, the Taylor series of e^r to r^10 (the next term is below
// 3e-13 of the sum), and k into the exponent. Arithmetic without branches becomes vectors; the library's
// function costs several times that.
double exp_of(double x) {
  constexpr double kShift = 0x1.8p52;  // adding it leaves a whole number in the low bits
  constexpr double kLn2High = 0x1.62e42fefa0000p-1, kLn2Low = 0x1.cf79abc9e3b3ap-40;
  x = x < -700.0 ? -700.0 : x;
  const double shifted = x * std::numbers::log2e + kShift;
  const double k = shifted - kShift;
  const double r = (x - k * kLn2High) - k * kLn2Low;
  double sum = 1.0 / 3628800;
  sum = sum * r + 1.0 / 362880;
  sum = sum * r + 1.0 / 40320;
  sum = sum * r + 1.0 / 5040;
  sum = sum * r + 1.0 / 720;
  sum = sum * r + 1.0 / 120;
  sum = sum * r + 1.0 / 24;
  sum = sum * r + 1.0 / 6;
  sum = sum * r + 0.5;
  sum = sum * r + 1.0;
  sum = sum * r + 1.0;
  // k >= -1010, so the exponent stays that of a normal number.
  return std::bit_cast<double>(std::bit_cast<std::uint64_t>(sum) +
                               (std::bit_cast<std::uint64_t>(shifted) << 52));
}

RowRange row_range_pass(std::span<const float> row) {
  std::array<float, kLanes> top, lowest;
  std::array<std::uint32_t, kLanes> nan{};
  top.fill(-INFINITY);
  lowest.fill(INFINITY);
  const auto take = [&](std::size_t lane, float value) {
    top[lane] = value > top[lane] ? value : top[lane];
    const float finite = value > -INFINITY ? value : INFINITY;
    lowest[lane] = finite < lowest[lane] ? finite : lowest[lane];
    nan[lane] |= static_cast<std::uint32_t>(value != value);
  };
  std::size_t i = 0;
  for (; i + kLanes <= row.size(); i += kLanes)
    for (std::size_t lane = 0; lane < kLanes; ++lane) take(lane, row[i + lane]);
  for (; i < row.size(); ++i) take(0, row[i]);
  return {*std::max_element(top.begin(), top.end()),
          *std::min_element(lowest.begin(), lowest.end()),
          std::any_of(nan.begin(), nan.end(), [](std::uint32_t lane) { return lane != 0; })};
}

std::size_t next_at_least_pass(std::span<const float> row, std::size_t from, float floor) {
  constexpr std::size_t kCompared = 32;
  std::size_t i = from;
  for (; i + kCompared <= row.size(); i += kCompared) {
    std::uint32_t any = 0;
    for (std::size_t lane = 0; lane < kCompared; ++lane)
      any |= static_cast<std::uint32_t>(row[i + lane] >= floor);
    if (any != 0) break;
  }
  while (i < row.size() && !(row[i] >= floor)) ++i;
  return i;
}

std::size_t count_at_least_pass(std::span<const float> row, float floor) {
  std::uint32_t count = 0;
  for (const float value : row) count += static_cast<std::uint32_t>(value >= floor);
  return count;
}

double exp_sum_pass(std::span<const float> row, float top) {
  constexpr std::size_t kSums = 8;
  std::array<double, kSums> sums{};
  std::size_t i = 0;
  for (; i + kSums <= row.size(); i += kSums)
    for (std::size_t lane = 0; lane < kSums; ++lane)
      sums[lane] += exp_of(static_cast<double>(row[i + lane]) - static_cast<double>(top));
  for (; i < row.size(); ++i)
    sums[0] += exp_of(static_cast<double>(row[i]) - static_cast<double>(top));
  double sum = 0.0;
  for (const double lane : sums) sum += lane;
  return sum;
}

void fill_buckets_pass(std::span<const float> row, const BucketRule& rule,
                       std::span<std::uint16_t> bucket, std::array<double, kBuckets + 1>& mass) {
  mass.fill(0.0);
  const double top = static_cast<double>(rule.top);
  std::array<double, kBlock> weight;
  for (std::size_t begin = 0; begin < row.size(); begin += kBlock) {
    const std::size_t count = std::min(kBlock, row.size() - begin);
    const float* logits = row.data() + begin;
    std::uint16_t* index = bucket.data() + begin;
    for (std::size_t i = 0; i < count; ++i)
      weight[i] = exp_of((static_cast<double>(logits[i]) - top) * rule.inverse_temperature);
    for (std::size_t i = 0; i < count; ++i) {
      const float at = (rule.top - logits[i]) * rule.scale;
      const int inside = static_cast<int>(at < kBuckets - 1 ? at : kBuckets - 1);
      index[i] = static_cast<std::uint16_t>(logits[i] >= rule.floor ? inside : int{kBuckets});
    }
    for (std::size_t i = 0; i < count; ++i) mass[index[i]] += weight[i];
  }
}

constexpr RowPasses kPasses = {row_range_pass, next_at_least_pass, count_at_least_pass,
                               exp_sum_pass, fill_buckets_pass};
