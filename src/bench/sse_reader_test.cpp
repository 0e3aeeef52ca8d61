#include "bench/sse_reader.h"

#include <gtest/gtest.h>

#include <vector>

#include "bench/random.h"

namespace nibble::bench {
namespace {

std::vector<std::string> read_in_pieces(std::string_view stream,
                                        const std::vector<std::size_t>& cuts) {
  std::vector<std::string> events;
  SseReader reader([&](std::string_view data) { events.emplace_back(data); });
  std::size_t begin = 0;
  for (const std::size_t cut : cuts) {
    reader.push(stream.substr(begin, cut - begin));
    begin = cut;
  }
  reader.push(stream.substr(begin));
  return events;
}

const std::string kStream =
    ": a comment\n\n"
    "data: {\"a\": 1}\n\n"
    "data:no blank\r\n\r\n"
    "event: named\rdata: with\rdata: two lines\r\r"
    "id: 7\nretry: 5\n\n"
    "data:\n\n"
    "data: [DONE]\n\n"
    "data: cut off\n";
const std::vector<std::string> kEvents = {"{\"a\": 1}", "no blank", "with\ntwo lines", "",
                                          "[DONE]"};

TEST(SseReader, ReadsEveryKindOfLine) {
  EXPECT_EQ(read_in_pieces(kStream, {}), kEvents);
}

TEST(SseReader, AnyTwoPiecesGiveTheSame) {
  for (std::size_t cut = 0; cut <= kStream.size(); ++cut)
    EXPECT_EQ(read_in_pieces(kStream, {cut}), kEvents) << "cut at " << cut;
}

TEST(SseReader, SingleBytesGiveTheSame) {
  std::vector<std::size_t> cuts(kStream.size());
  for (std::size_t i = 0; i < cuts.size(); ++i) cuts[i] = i;
  EXPECT_EQ(read_in_pieces(kStream, cuts), kEvents);
}

TEST(SseReader, RandomPiecesGiveTheSame) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Random random(seed);
    std::vector<std::size_t> cuts;
    for (std::size_t at = random.below(9); at < kStream.size(); at += random.below(9))
      cuts.push_back(at);
    EXPECT_EQ(read_in_pieces(kStream, cuts), kEvents) << "seed " << seed;
  }
}

}  // namespace
}  // namespace nibble::bench
