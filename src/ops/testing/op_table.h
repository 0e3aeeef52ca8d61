// What the case files share: random inputs, running an op on both backends, comparing.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ops/testing/op_cases.h"

namespace nibble::ops::testing {

using Floats = std::vector<float>;
using Ints = std::vector<std::int32_t>;

inline constexpr double kUnit = 0x1p-24;  // of fp32 rounding

// How far two correct backends may differ, element by element.
//   bound    what the order of the sums and the last bits of exp, sin and the like can change
//   rounded  the op's last step rounds to bf16: where the bound crosses a rounding boundary the result
//            is one quantum away (`quanta` when the op rounds several times on the way) plus `slack`,
//            what a quantum in an inner rounding does to this element. That must stay rare: at most
//            `flips` of all elements (and 2). So a rounding that is missing or wrong is seen.
struct Tolerance {
  std::vector<double> bound;
  bool rounded = false;
  double quanta = 1.0;
  std::vector<double> slack = {};  // empty: none
  double flips = 0.01;
  bool on_bf16_grid = true;  // when rounded
};

class OpTable {
 public:
  OpTable(Backend& subject, Backend& reference, std::uint64_t seed)
      : subject_(subject), reference_(reference), random_(seed) {}

  bool release() const { return subject_.numerics().release; }
  // The subject multiplies matrices of that shape on tensor cores, which sum products of FP8 with about 14 bits.
  bool on_tensor_cores(OpKind op, quant::Format format, std::int64_t rows,
                       std::int64_t cols) const {
    return subject_.kernel(op, format, rows, cols).unit == "tensor core";
  }
  OpReport& report() { return report_; }

  // Normal with the given deviation; uniform in [low, high); integers in [low, high].
  Floats normal(std::int64_t count, float deviation = 1.0f);
  // The same as an op's activations are: on the bf16 grid in release numerics.
  Floats activations(std::int64_t count, float deviation);
  Floats uniform(std::int64_t count, float low, float high);
  std::int32_t integer(std::int32_t low, std::int32_t high);

  // {subject's, reference's} result of `run(backend)`.
  template <typename Run>
  auto both(const Run& run) {
    auto found = run(subject_);
    return std::pair(std::move(found), run(reference_));
  }

  // Names the case that the checks after it belong to.
  void begin(std::string op, std::string what);
  void check(const char* output, const Floats& found, const Floats& expected,
             const Tolerance& tolerance);
  void check_equal(const char* output, const Floats& found, const Floats& expected);
  void check_equal(const char* output, const Ints& found, const Ints& expected);
  void fail(const std::string& text);

 private:
  Backend& subject_;
  Backend& reference_;
  std::mt19937_64 random_;
  OpReport report_;
  std::string op_, case_;
  bool failed_ = false;
};

// --- memory ---

tensor::View put(Backend& backend, const Floats& values, const tensor::Shape& shape);
tensor::View put(Backend& backend, const Ints& values, const tensor::Shape& shape);
// Filled with NaN, or with the smallest integer.
tensor::View poisoned(Backend& backend, const tensor::Shape& shape);
tensor::View poisoned_ints(Backend& backend, const tensor::Shape& shape);
Floats floats_of(Backend& backend, const tensor::View& view);
Ints ints_of(Backend& backend, const tensor::View& view);

// Stored rows on the host. Every byte is 0xFF until the row is set: NaN in all formats.
class StoredRows {
 public:
  StoredRows(RowFormat format, int width, std::int64_t count);

  std::int64_t count() const { return count_; }
  void set(std::int64_t row, const float* x);
  Floats get(std::int64_t row) const;  // as stored
  bool untouched(std::int64_t row) const;
  // In a backend's memory, and back.
  std::byte* put(Backend& backend) const;
  void fetch(Backend& backend, std::byte* data);

 private:
  std::byte* at(std::int64_t row) const;

  RowFormat format_;
  int width_;
  std::int64_t count_;
  mutable Ints words_;  // whole words, which a backend can upload
};

// State whose rows are all NaN.
StatePool make_state(Backend& backend, int width, std::int64_t slots, std::int64_t ring);

const char* format_name(RowFormat format);

// --- weights ---

// A matrix on the format's grid, and its values. Uploaded once for each backend.
struct Weights {
  quant::Format format;
  std::int64_t rows, cols;
  Floats published;  // what it was encoded from
  Floats values;     // on the grid

  Matrix upload(Backend& backend) const;
  const float* row(std::int64_t r) const { return values.data() + r * cols; }
};
Weights make_weights(OpTable& table, quant::Format format, std::int64_t rows, std::int64_t cols,
                     float deviation);

// --- bounds ---

// Two summations of a[i] * b[i] in different orders. For operands without a bias of sign the partial
// sums are a random walk, so their rounding errors add up to about unit * sqrt(n) * |a b|_2; eight
// times that for each of the two is never reached by chance.
double dot_bound(const float* a, const float* b, std::int64_t n);
// The spacing of bf16 numbers at x.
double bf16_quantum(double x);

// --- batches ---

// Which pages the sequences of a case have: page ids in random order, some of the pool's pages nobody's.
struct PageTables {
  std::int64_t rows_per_page = 0;
  int ratio = 0;
  std::int64_t pages = 0;
  std::vector<Ints> of_slot;

  // Entry w of the slot as a row of all pages.
  std::int64_t row(std::int32_t slot, std::int64_t w) const {
    return of_slot[static_cast<std::size_t>(slot)][static_cast<std::size_t>(w / rows_per_page)] *
               rows_per_page +
           w % rows_per_page;
  }
  std::int64_t rows() const { return pages * rows_per_page; }
};
// For sequences of up to `tokens` tokens.
PageTables make_pages(OpTable& table, std::int64_t slots, std::int64_t tokens, int ratio,
                      std::int64_t rows_per_page);

struct OwnedBatch {
  std::vector<TokenId> ids;
  std::vector<Segment> segments;
  Ints pages;
  Batch view() const { return {ids, segments, pages}; }
  std::int64_t rows() const { return static_cast<std::int64_t>(ids.size()); }
};
struct Run {  // of one sequence: `rows` tokens from `position` on
  std::int32_t slot, position, rows;
};
// A segment a run. With tables: its pages for the entries it can see and no more, between ids that are no pages.
OwnedBatch make_batch(const std::vector<Run>& runs, const PageTables* tables = nullptr);
std::string describe(const std::vector<Run>& runs);  // " slot 0: 5+3", for a case's name
std::int64_t longest(const std::vector<Run>& runs);  // tokens of the longest sequence after them

// Inverse frequencies base^(-i / pairs), and the table in a backend's memory.
Floats make_inverse_frequencies(int pairs);
RopeTable put_rope(Backend& backend, const Floats& frequencies);

// --- the cases, a file an area ---

void dense_cases(OpTable& table);
void hyper_connection_cases(OpTable& table);
void cache_cases(OpTable& table);
void copy_cases(OpTable& table);
void argmax_cases(OpTable& table);
void attention_cases(OpTable& table);
void index_cases(OpTable& table);
void moe_cases(OpTable& table);

}  // namespace nibble::ops::testing
