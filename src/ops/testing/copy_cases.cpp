// gather_rows, save_ranges and load_ranges: plain copies, so equal to the bit.
#include <fmt/format.h>

#include "ops/testing/op_table.h"

namespace nibble::ops::testing {
namespace {

void gather_case(OpTable& table, std::int64_t n, const tensor::Shape& row, const Ints& rows) {
  const std::int64_t width = row.elements(), m = static_cast<std::int64_t>(rows.size());
  table.begin("gather_rows", fmt::format("{} of {} rows of {}", m, n, row.to_string()));
  const Floats x = table.normal(n * width);
  const auto [found, expected] = table.both([&](Backend& b) {
    const tensor::View y = poisoned(b, {m, row[0], row[1]});
    b.gather_rows({put(b, x, {n, row[0], row[1]}), rows, y});
    return floats_of(b, y);
  });
  table.check_equal("y", found, expected);
}

// Pieces of a buffer saved, and loaded into another one at other places.
void range_case(OpTable& table, const char* what, const std::vector<std::pair<int, int>>& pieces) {
  table.begin("save_ranges", what);
  Ints words(1000);
  for (std::int32_t& word : words) word = table.integer(0, 1 << 30);
  struct Result {
    Ints saved, loaded;
  };
  const auto [found, expected] = table.both([&](Backend& b) {
    const tensor::Shape shape{static_cast<std::int64_t>(words.size())};
    auto* from = static_cast<std::byte*>(put(b, words, shape).data);
    const tensor::View other = poisoned_ints(b, {shape[0] + 1});
    std::vector<ByteRange> ranges, places;
    std::int64_t total = 0;
    for (const auto& [begin, bytes] : pieces) {
      ranges.push_back({from + begin, bytes});
      places.push_back({static_cast<std::byte*>(other.data) + total + 3, bytes});
      total += bytes;
    }
    std::vector<std::byte> host(static_cast<std::size_t>(total));
    b.save_ranges(ranges, host);
    b.load_ranges(places, host);
    Result out{{}, ints_of(b, other)};
    for (const std::byte byte : host) out.saved.push_back(std::to_integer<std::int32_t>(byte));
    return out;
  });
  table.check_equal("saved", found.saved, expected.saved);
  table.check_equal("loaded", found.loaded, expected.loaded);
}

}  // namespace

void copy_cases(OpTable& table) {
  gather_case(table, 5, {1, 7}, {});
  gather_case(table, 1, {4, 33}, {0});
  gather_case(table, 9, {4, 64}, {8, 0, 3, 3});
  gather_case(table, 40, {4, 300}, {39, 38, 1, 0, 17, 17, 17, 20});
  range_case(table, "nothing", {});
  range_case(table, "one", {{0, 4000}});
  range_case(table, "words", {{400, 80}, {0, 4}, {800, 1000}, {80, 128}});
  range_case(table, "odd bytes", {{1, 7}, {1000, 1}, {777, 333}, {8, 16}, {64, 256}});
}

}  // namespace nibble::ops::testing
