// Compares the tokenizer with cases an oracle wrote (tokenizer_oracle_test.py):
//
//   tokenizer_cases encode TOKENIZER.json CASES   every case equal, and 1 MB runs in under a second
//   tokenizer_cases classes FILE                  class bits of all 1,114,112 code points
//
// CASES is a sequence of records, little-endian: text bytes (u32 length first), plain ids (u32
// count, then i32 each), ids with control tokens, decoded text of the latter, ends of the
// pre-tokenizer's pieces (u32 count, then i32 each). Exit 1 when something differs; what differs is
// printed.
#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "text/detokenizer.h"
#include "text/pretokenizer.h"
#include "text/tokenizer.h"
#include "text/unicode_tables.h"

namespace {

using nibble::TokenId;
using nibble::text::Tokenizer;

constexpr int kShownDifferences = 10;

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(path + ": cannot be opened");
  return {std::istreambuf_iterator<char>(file), {}};
}

class Records {
 public:
  explicit Records(std::string bytes) : bytes_(std::move(bytes)) {}
  bool done() const { return at_ == bytes_.size(); }

  std::string text() {
    const std::uint32_t size = number();
    std::string out = bytes_.substr(at_, size);
    at_ += size;
    return out;
  }
  std::vector<TokenId> ids() {
    std::vector<TokenId> out(number());
    if (out.empty()) return out;
    std::memcpy(out.data(), bytes_.data() + at_, out.size() * sizeof(TokenId));
    at_ += out.size() * sizeof(TokenId);
    return out;
  }

 private:
  std::uint32_t number() {
    if (bytes_.size() - at_ < 4) throw std::runtime_error("the case file is cut");
    std::uint32_t value = 0;
    std::memcpy(&value, bytes_.data() + at_, 4);
    at_ += 4;
    return value;
  }

  std::string bytes_;
  std::size_t at_ = 0;
};

class Report {
 public:
  void differ(const std::string& what, const std::string& text,
              const std::vector<TokenId>& expected, const std::vector<TokenId>& found) {
    if (++count_ > kShownDifferences) return;
    std::size_t at = 0;
    while (at < expected.size() && at < found.size() && expected[at] == found[at]) ++at;
    const auto near = [&](const std::vector<TokenId>& ids) {
      std::string out;
      for (std::size_t i = at; i < ids.size() && i < at + 6; ++i) out += fmt::format(" {}", ids[i]);
      return out;
    };
    fmt::print("{}: first difference at index {}: expected{}, found{}; text {:.200}\n", what, at,
               near(expected), near(found), text);
  }
  void differ(const std::string& what, const std::string& expected, const std::string& found) {
    if (++count_ <= kShownDifferences) {
      fmt::print("{}: expected {:.200}, found {:.200}\n", what, expected, found);
    }
  }
  int count() const { return count_; }

 private:
  int count_ = 0;
};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::string stream(const Tokenizer& tokenizer, const std::vector<TokenId>& ids,
                   std::mt19937& random) {
  nibble::text::Detokenizer detokenizer(tokenizer, false);
  std::string out;
  for (std::size_t at = 0; at < ids.size();) {
    const std::size_t take = std::min<std::size_t>(1 + random() % 4, ids.size() - at);
    out += detokenizer.push(std::span(ids).subspan(at, take));
    at += take;
  }
  return out + detokenizer.finish();
}

int compare(const std::string& tokenizer_file, const std::string& case_file) {
  const Tokenizer tokenizer = Tokenizer::load(tokenizer_file);
  Records records(read_file(case_file));
  Report report;
  std::mt19937 random(1);
  std::size_t cases = 0;
  std::size_t bytes = 0;
  std::size_t tokens = 0;
  double seconds = 0;
  while (!records.done()) {
    const std::string text = records.text();
    const std::vector<TokenId> plain = records.ids();
    const std::vector<TokenId> control = records.ids();
    const std::string decoded = records.text();
    const std::vector<std::int32_t> ends = records.ids();
    std::vector<std::size_t> found_ends;
    nibble::text::split_pieces(text, found_ends);
    if (!std::equal(
            ends.begin(), ends.end(), found_ends.begin(), found_ends.end(),
            [](std::int32_t a, std::size_t b) { return static_cast<std::size_t>(a) == b; })) {
      report.differ("pieces", text, ends, {found_ends.begin(), found_ends.end()});
    }
    const auto start = std::chrono::steady_clock::now();
    const std::vector<TokenId> found = tokenizer.encode(text);
    seconds += seconds_since(start);
    if (found != plain) report.differ("encode", text, plain, found);
    const std::vector<TokenId> found_control = tokenizer.encode_with_control(text);
    if (found_control != control)
      report.differ("encode_with_control", text, control, found_control);
    for (const TokenId id : found) {
      if (tokenizer.is_added(id)) report.differ("control token in plain text", text, plain, found);
    }
    if (tokenizer.decode(found) != text) report.differ("round trip", text, tokenizer.decode(found));
    if (tokenizer.decode(control) != decoded)
      report.differ("decode", decoded, tokenizer.decode(control));
    if (stream(tokenizer, control, random) != decoded) {
      report.differ("streamed", decoded, stream(tokenizer, control, random));
    }
    ++cases;
    bytes += text.size();
    tokens += found.size();
  }
  fmt::print("{} cases, {} bytes, {} tokens, {:.1f} MB/s, {} differences\n", cases, bytes, tokens,
             static_cast<double>(bytes) / seconds / 1e6, report.count());
  if (cases == 0) return 1;

  for (const std::string unit :
       {"a", " ", "\n", "0", "!", "\u4E00", "\u0301", "\u200D", "\x01", "ab", "a "}) {
    std::string run;
    while (run.size() < 1'000'000) run += unit;
    const auto start = std::chrono::steady_clock::now();
    const std::size_t count = tokenizer.encode(run).size();
    const double taken = seconds_since(start);
    fmt::print("1 MB of {}: {} tokens, {:.3f} s\n",
               unit.size() == 1 ? fmt::format("0x{:02x}", unit[0]) : unit, count, taken);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    constexpr double kLimit = 20.0;
#else
    constexpr double kLimit = 1.0;
#endif
    if (taken > kLimit) report.differ("too slow", "1 s", fmt::format("{} s", taken));
  }
  return report.count() == 0 ? 0 : 1;
}

int compare_classes(const std::string& file) {
  const std::string expected = read_file(file);
  Report report;
  if (expected.size() != 0x110000)
    report.differ("code points", "1114112", std::to_string(expected.size()));
  for (std::size_t c = 0; c < expected.size(); ++c) {
    const auto bits = static_cast<unsigned char>(expected[c]);
    const unsigned found = nibble::text::class_bits(static_cast<char32_t>(c));
    if (bits != found) {
      report.differ(fmt::format("U+{:04X}", c), std::to_string(bits), std::to_string(found));
    }
  }
  fmt::print("{} code points, {} differences\n", expected.size(), report.count());
  return report.count() == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  try {
    if (args.size() == 3 && args[0] == "encode") return compare(args[1], args[2]);
    if (args.size() == 2 && args[0] == "classes") return compare_classes(args[1]);
  } catch (const std::exception& error) {
    fmt::print("{}\n", error.what());
    return 1;
  }
  fmt::print("usage: tokenizer_cases encode TOKENIZER.json CASES | classes FILE\n");
  return 2;
}
