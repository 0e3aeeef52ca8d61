#include "sample/truncated_draw.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace nibble::sample {
namespace {

constexpr float kLowest = std::numeric_limits<float>::lowest();
// Past this many temperatures below the top a token's weight is under e^-50: one bucket takes them all.
constexpr double kDeepest = 50.0;
// Tokens that are sorted sooner than a row is cut into buckets.
constexpr std::size_t kFew = 1024;

double weight(float logit, float top, double temperature) {
  return std::exp((static_cast<double>(logit) - static_cast<double>(top)) / temperature);
}

// Floats in the order of their values: -0 just below 0.
std::int64_t order_of(float value) {
  const auto bits = std::bit_cast<std::int32_t>(value);
  return bits >= 0 ? bits : std::int64_t{std::numeric_limits<std::int32_t>::min()} - 1 - bits;
}
float float_at(std::int64_t order) {
  return std::bit_cast<float>(static_cast<std::int32_t>(
      order >= 0 ? order : std::int64_t{std::numeric_limits<std::int32_t>::min()} - 1 - order));
}

// The lowest logit whose weight is at least min_p. A weight never falls when a logit rises, so that
// comparing logits with it is comparing weights with min_p.
float floor_of(float top, const SamplingParams& params) {
  if (!(params.min_p > 0.0f)) return kLowest;
  const auto enough = [&](float logit) {
    return weight(logit, top, params.temperature) >= static_cast<double>(params.min_p);
  };
  std::int64_t low = order_of(kLowest), high = order_of(top);  // high: enough
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    if (enough(float_at(middle)))
      high = middle;
    else
      low = middle + 1;
  }
  return float_at(high);
}

}  // namespace

std::span<const Ranked> TruncatedDraw::best(std::span<const float> row, std::size_t count,
                                            float floor) {
  ranked_.clear();
  count = std::min(count, row.size());
  if (count == 0) return {};
  // Keeps up to twice `count` candidates, then the better half: the worst of these is the bar for the
  // rest of the row, which a later id must exceed.
  const std::size_t most = 2 * count + 64;
  float bar = std::max(floor, kLowest);
  for (std::size_t i = next_at_least(row, 0, bar); i < row.size();
       i = next_at_least(row, i + 1, bar)) {
    ranked_.push_back({row[i], static_cast<TokenId>(i)});
    if (ranked_.size() < most) continue;
    const auto last = ranked_.begin() + static_cast<std::ptrdiff_t>(count) - 1;
    std::nth_element(ranked_.begin(), last, ranked_.end());
    bar = std::nextafter(last->logit, INFINITY);
    ranked_.resize(count);
  }
  count = std::min(count, ranked_.size());
  const auto end = ranked_.begin() + static_cast<std::ptrdiff_t>(count);
  std::nth_element(ranked_.begin(), end, ranked_.end());
  std::sort(ranked_.begin(), end);
  ranked_.resize(count);
  return ranked_;
}

TokenId TruncatedDraw::from_sorted(std::span<const Ranked> sorted, const SamplingParams& params,
                                   double u) {
  sums_.clear();
  double mass = 0.0;
  for (const Ranked& entry : sorted) {
    mass += weight(entry.logit, sorted[0].logit, params.temperature);
    sums_.push_back(mass);
  }
  const auto cut = std::lower_bound(sums_.begin(), sums_.end(), params.top_p * mass);
  const auto last = cut == sums_.end() ? cut - 1 : cut;
  const auto chosen = std::upper_bound(sums_.begin(), last, u * *last);
  return sorted[static_cast<std::size_t>(chosen - sums_.begin())].token;
}

TokenId TruncatedDraw::draw(std::span<const float> row, const RowRange& range,
                            const SamplingParams& params, double u) {
  const float floor = floor_of(range.top, params);
  const bool top_k = params.top_k > 0 && static_cast<std::size_t>(params.top_k) < row.size();
  std::size_t count = top_k ? static_cast<std::size_t>(params.top_k) : row.size();
  if (params.min_p > 0.0f) count = std::min(count, count_at_least(row, floor));
  if (top_k || count <= kFew) return from_sorted(best(row, count, floor), params, u);
  if (const auto token = from_buckets(row, range, floor, params, u)) return *token;
  return from_sorted(best(row, row.size(), floor), params, u);
}

// Sums a bucket at a time, sorts the one bucket that holds the answer, and gives no answer when the
// rounding of these sums, which are not in order, could change it. That is rare: the bound below is
// about 1e-10 of the mass.
std::optional<TokenId> TruncatedDraw::from_buckets(std::span<const float> row,
                                                   const RowRange& range, float floor,
                                                   const SamplingParams& params, double u) {
  BucketRule rule;
  rule.top = range.top;
  rule.floor = floor;
  rule.inverse_temperature = 1.0 / params.temperature;
  const double depth =
      std::min(static_cast<double>(range.top) - static_cast<double>(std::max(range.lowest, floor)),
               kDeepest * params.temperature);
  if (depth > 0.0)
    rule.scale = static_cast<float>(
        std::min(kBuckets / depth, static_cast<double>(std::numeric_limits<float>::max())));
  bucket_.resize(row.size());
  fill_buckets(row, rule, bucket_, mass_);
  double mass = 0.0;
  for (std::size_t b = 0; b < kBuckets; ++b) mass += mass_[b];
  // A sum of n positive terms is off by at most n roundings of 2^-53, here and in order; the weights
  // by 2e-12 here and by a rounding of (logit - top) / temperature there. Twice that.
  const double error = mass * 2.0 * (static_cast<double>(row.size()) * 0x1p-52 + 3e-12);
  double kept = mass;
  if (params.top_p < 1.0f) {
    const auto cut = find(row, range, params.temperature, params.top_p * mass, 2.0 * error);
    if (!cut) return std::nullopt;
    kept = cut->sum;
  }
  const auto place = find(row, range, params.temperature, u * kept, 2.0 * error);
  if (!place) return std::nullopt;
  return place->token;
}

std::optional<TruncatedDraw::Place> TruncatedDraw::find(std::span<const float> row,
                                                        const RowRange& range, double temperature,
                                                        double target, double error) {
  std::size_t b = 0;
  double sum = 0.0;
  while (b < kBuckets && sum + mass_[b] <= target) sum += mass_[b++];
  if (b == kBuckets) return std::nullopt;
  ranked_.clear();
  for (std::size_t i = 0; i < row.size(); ++i)
    if (bucket_[i] == b) ranked_.push_back({row[i], static_cast<TokenId>(i)});
  // In order of ids already where many logits are equal.
  if (!std::is_sorted(ranked_.begin(), ranked_.end())) std::sort(ranked_.begin(), ranked_.end());
  bool first = b == 0;
  for (const Ranked& entry : ranked_) {
    const double before = sum;
    sum += weight(entry.logit, range.top, temperature);
    if (sum > target) {
      const bool certain = sum - target > error && (first || target - before > error);
      return certain ? std::optional<Place>({entry.token, sum}) : std::nullopt;
    }
    first = false;
  }
  return std::nullopt;
}

}  // namespace nibble::sample
