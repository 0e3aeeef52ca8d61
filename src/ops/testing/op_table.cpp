#include "ops/testing/op_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <random>
#include <string>

#include "ops/ref/rounding.h"
#include "quant/bf16.h"

namespace nibble::ops::testing {

std::uint64_t case_seed() {
  static const std::uint64_t value = [] {
    const char* set = std::getenv("NIBBLE_TEST_SEED");
    const std::uint64_t drawn = set ? std::stoull(set) : std::random_device{}();
    std::printf("seed %llu\n", static_cast<unsigned long long>(drawn));
    return drawn;
  }();
  return value;
}

Floats OpTable::normal(std::int64_t count, float deviation) {
  std::normal_distribution<float> draw(0.0f, deviation);
  Floats out(static_cast<std::size_t>(count));
  for (float& x : out) x = draw(random_);
  return out;
}

Floats OpTable::activations(std::int64_t count, float deviation) {
  Floats out = normal(count, deviation);
  if (release())
    for (float& x : out) x = quant::bf16_round(x);
  return out;
}

Floats OpTable::uniform(std::int64_t count, float low, float high) {
  std::uniform_real_distribution<float> draw(low, high);
  Floats out(static_cast<std::size_t>(count));
  for (float& x : out) x = draw(random_);
  return out;
}

std::int32_t OpTable::integer(std::int32_t low, std::int32_t high) {
  return std::uniform_int_distribution<std::int32_t>(low, high)(random_);
}

void OpTable::begin(std::string op, std::string what) {
  op_ = std::move(op);
  case_ = std::move(what);
  failed_ = false;
  ++report_.cases;
}

void OpTable::fail(const std::string& text) {
  if (failed_) return;
  failed_ = true;
  report_.failures.push_back(fmt::format("{} [{}]: {}", op_, case_, text));
}

void OpTable::check(const char* output, const Floats& found, const Floats& expected,
                    const Tolerance& tolerance) {
  if (found.size() != expected.size() || tolerance.bound.size() != expected.size()) {
    fail(fmt::format("{}: {} values, expected {}, bounds {}", output, found.size(), expected.size(),
                     tolerance.bound.size()));
    return;
  }
  report_.values += static_cast<std::int64_t>(found.size());
  double worst = 0.0;
  std::size_t worst_at = 0, wrong = 0, flips = 0;
  const auto blame = [&](std::size_t i, double excess) {
    if (++wrong == 1 || !(excess <= worst)) {
      worst = excess;
      worst_at = i;
    }
  };
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double distance = std::fabs(static_cast<double>(found[i]) - expected[i]);
    const double bound = tolerance.bound[i];
    if (tolerance.rounded && tolerance.on_bf16_grid && quant::bf16_round(found[i]) != found[i]) {
      blame(i, std::numeric_limits<double>::infinity());
    } else if (distance <= bound) {
      continue;
    } else if (tolerance.rounded) {
      const double magnitude = std::max(std::fabs(found[i]), std::fabs(expected[i]));
      const double further = tolerance.quanta * bf16_quantum(magnitude) +
                             (tolerance.slack.empty() ? 0.0 : tolerance.slack[i]);
      ++flips;
      if (!(distance <= bound + further)) blame(i, distance / (bound + further));
    } else {
      blame(i, distance / bound);
    }
  }
  if (wrong > 0) {
    fail(fmt::format("{}: {} of {} wrong; worst at {}: expected {}, found {}, bound {:.3g}", output,
                     wrong, found.size(), worst_at, expected[worst_at], found[worst_at],
                     tolerance.bound[worst_at]));
  } else if (static_cast<double>(flips) >
             2.0 + tolerance.flips * static_cast<double>(found.size())) {
    fail(fmt::format("{}: {} of {} values are rounded to another neighbour", output, flips,
                     found.size()));
  }
}

void OpTable::check_equal(const char* output, const Floats& found, const Floats& expected) {
  check(output, found, expected, {.bound = std::vector<double>(expected.size(), 0.0)});
}

void OpTable::check_equal(const char* output, const Ints& found, const Ints& expected) {
  if (found.size() != expected.size()) {
    fail(fmt::format("{}: {} values, expected {}", output, found.size(), expected.size()));
    return;
  }
  report_.values += static_cast<std::int64_t>(found.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    if (found[i] != expected[i]) {
      fail(fmt::format("{}: at {}: expected {}, found {}", output, i, expected[i], found[i]));
      return;
    }
}

tensor::View put(Backend& backend, const Floats& values, const tensor::Shape& shape) {
  return backend.upload(std::span<const float>(values), shape);
}

tensor::View put(Backend& backend, const Ints& values, const tensor::Shape& shape) {
  return backend.upload(std::span<const std::int32_t>(values), shape);
}

tensor::View poisoned(Backend& backend, const tensor::Shape& shape) {
  return put(
      backend,
      Floats(static_cast<std::size_t>(shape.elements()), std::numeric_limits<float>::quiet_NaN()),
      shape);
}

tensor::View poisoned_ints(Backend& backend, const tensor::Shape& shape) {
  return put(
      backend,
      Ints(static_cast<std::size_t>(shape.elements()), std::numeric_limits<std::int32_t>::min()),
      shape);
}

Floats floats_of(Backend& backend, const tensor::View& view) {
  Floats out(static_cast<std::size_t>(view.shape.elements()));
  backend.download(view, std::as_writable_bytes(std::span(out)));
  return out;
}

Ints ints_of(Backend& backend, const tensor::View& view) {
  Ints out(static_cast<std::size_t>(view.shape.elements()));
  backend.download(view, std::as_writable_bytes(std::span(out)));
  return out;
}

StoredRows::StoredRows(RowFormat format, int width, std::int64_t count)
    : format_(format),
      width_(width),
      count_(count),
      words_(static_cast<std::size_t>((count * row_bytes(format, width) + 3) / 4), -1) {}

std::byte* StoredRows::at(std::int64_t row) const {
  return std::as_writable_bytes(std::span(words_)).data() + row * row_bytes(format_, width_);
}

void StoredRows::set(std::int64_t row, const float* x) {
  ref::store_row(format_, width_, x, at(row));
}

Floats StoredRows::get(std::int64_t row) const {
  Floats out(static_cast<std::size_t>(width_));
  ref::load_row(format_, width_, at(row), out.data());
  return out;
}

bool StoredRows::untouched(std::int64_t row) const {
  return std::all_of(at(row), at(row) + row_bytes(format_, width_),
                     [](std::byte byte) { return byte == std::byte{0xFF}; });
}

std::byte* StoredRows::put(Backend& backend) const {
  return static_cast<std::byte*>(
      testing::put(backend, words_, {static_cast<std::int64_t>(words_.size())}).data);
}

void StoredRows::fetch(Backend& backend, std::byte* data) {
  backend.download({data, tensor::DType::kI32, {static_cast<std::int64_t>(words_.size())}},
                   std::as_writable_bytes(std::span(words_)));
}

StatePool make_state(Backend& backend, int width, std::int64_t slots, std::int64_t ring) {
  StatePool state;
  state.slots = slots;
  state.ring = ring;
  state.width = width;
  state.values = poisoned(backend, {slots, ring, width}).f32();
  state.gates = poisoned(backend, {slots, ring, width}).f32();
  return state;
}

const char* format_name(RowFormat format) {
  switch (format) {
    case RowFormat::kF32:
      return "F32";
    case RowFormat::kBf16:
      return "bf16";
    case RowFormat::kFp8Nope:
      return "FP8+bf16";
    case RowFormat::kFp4Index:
      return "FP4";
  }
  return "?";
}

Matrix Weights::upload(Backend& backend) const {
  return backend.upload(quant::encode_matrix(format, rows, cols, published));
}

Weights make_weights(OpTable& table, quant::Format format, std::int64_t rows, std::int64_t cols,
                     float deviation) {
  Weights w{format, rows, cols, table.normal(rows * cols, deviation), {}};
  // Some rows and columns far smaller than others, so that scales differ from block to block.
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < cols; ++c)
      w.published[static_cast<std::size_t>(r * cols + c)] *=
          std::ldexp(1.0f, static_cast<int>((r / 40 + c / 50) % 3) - 1);
  const quant::HostMatrix encoded = quant::encode_matrix(format, rows, cols, w.published);
  w.values.resize(w.published.size());
  for (std::int64_t r = 0; r < rows; ++r)
    quant::decode_row(encoded, r, {w.values.data() + r * cols, static_cast<std::size_t>(cols)});
  return w;
}

double dot_bound(const float* a, const float* b, std::int64_t n) {
  double squares = 0.0;
  for (std::int64_t i = 0; i < n; ++i) {
    const double product = static_cast<double>(a[i]) * b[i];
    squares += product * product;
  }
  return 2.0 * 8.0 * kUnit * (std::sqrt(static_cast<double>(n)) + 2.0) * std::sqrt(squares);
}

double bf16_quantum(double x) {
  if (x == 0.0) return 0x1p-133;
  return std::ldexp(1.0, std::max(std::ilogb(x), -126) - 7);
}

PageTables make_pages(OpTable& table, std::int64_t slots, std::int64_t tokens, int ratio,
                      std::int64_t rows_per_page) {
  constexpr std::int64_t kNobodys = 3;
  PageTables out{rows_per_page, ratio, 0, {}};
  const std::int64_t each = (tokens / ratio + rows_per_page - 1) / rows_per_page;
  out.pages = slots * each + kNobodys;
  Ints ids(static_cast<std::size_t>(out.pages));
  std::iota(ids.begin(), ids.end(), 0);
  for (std::size_t i = ids.size() - 1; i > 0; --i)
    std::swap(ids[i], ids[static_cast<std::size_t>(table.integer(0, static_cast<int>(i)))]);
  for (std::int64_t slot = 0; slot < slots; ++slot)
    out.of_slot.emplace_back(ids.begin() + slot * each, ids.begin() + (slot + 1) * each);
  return out;
}

OwnedBatch make_batch(const std::vector<Run>& runs, const PageTables* tables) {
  constexpr std::int32_t kNoPage = std::numeric_limits<std::int32_t>::min();
  OwnedBatch batch;
  std::int32_t row = 0;
  for (const Run& run : runs) {
    batch.pages.push_back(kNoPage);
    batch.segments.push_back(
        {row, run.rows, run.slot, run.position, static_cast<std::int32_t>(batch.pages.size())});
    row += run.rows;
    if (!tables) continue;
    const std::int64_t entries = (run.position + run.rows) / tables->ratio;
    const Ints& own = tables->of_slot[static_cast<std::size_t>(run.slot)];
    batch.pages.insert(batch.pages.end(), own.begin(),
                       own.begin() + (entries + tables->rows_per_page - 1) / tables->rows_per_page);
  }
  for (std::int32_t i = 0; i < row; ++i) batch.ids.push_back(i);
  return batch;
}

std::string describe(const std::vector<Run>& runs) {
  std::string out;
  for (const Run& run : runs)
    out += fmt::format(" slot {}: {}+{}", run.slot, run.position, run.rows);
  return out.empty() ? " nothing" : out;
}

std::int64_t longest(const std::vector<Run>& runs) {
  std::int64_t tokens = 0;
  for (const Run& run : runs) tokens = std::max<std::int64_t>(tokens, run.position + run.rows);
  return tokens;
}

Floats make_inverse_frequencies(int pairs) {
  Floats out(static_cast<std::size_t>(pairs));
  for (int i = 0; i < pairs; ++i)
    out[static_cast<std::size_t>(i)] =
        std::pow(10000.0f, -static_cast<float>(i) / static_cast<float>(pairs));
  return out;
}

RopeTable put_rope(Backend& backend, const Floats& frequencies) {
  const auto pairs = static_cast<std::int64_t>(frequencies.size());
  return {put(backend, frequencies, {pairs}).f32(), static_cast<int>(pairs)};
}

std::string OpReport::to_string() const {
  return fmt::format("{} cases, {} values, {} failures\n{}", cases, values, failures.size(),
                     fmt::join(failures, "\n"));
}

OpReport run_op_cases(Backend& subject, Backend& reference, std::uint64_t seed) {
  OpTable table(subject, reference, seed);
  dense_cases(table);
  hyper_connection_cases(table);
  cache_cases(table);
  copy_cases(table);
  argmax_cases(table);
  attention_cases(table);
  index_cases(table);
  moe_cases(table);
  return table.report();
}

}  // namespace nibble::ops::testing
