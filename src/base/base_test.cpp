#include <gtest/gtest.h>

#include <atomic>
#include <numeric>

#include "base/check.h"
#include "base/sha256.h"
#include "base/thread_pool.h"

namespace nibble {
namespace {

TEST(ThreadPool, EveryIndexRunsExactlyOnce) {
  for (int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    for (std::int64_t count : {0, 1, 7, 64, 1000}) {
      for (std::int64_t grain : {1, 3, 2000}) {
        std::vector<std::atomic<int>> hits(static_cast<std::size_t>(count));
        pool.run(count, grain, [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t i = begin; i < end; ++i) hits[static_cast<std::size_t>(i)]++;
        });
        for (const auto& hit : hits) EXPECT_EQ(hit.load(), 1);
      }
    }
  }
}

TEST(ThreadPool, ManyShortLoopsInARow) {
  ThreadPool pool(3);
  std::atomic<std::int64_t> sum{0};
  for (int round = 0; round < 5000; ++round)
    pool.run(8, 1, [&](std::int64_t begin, std::int64_t) { sum += begin; });
  EXPECT_EQ(sum.load(), 5000 * 28);
}

TEST(Sha256, KnownDigest) {
  // FIPS 180-2, appendix B.1.
  const std::string abc = "abc";
  EXPECT_EQ(sha256_hex(std::as_bytes(std::span(abc))),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(CheckDeathTest, PrintsValues) {
  EXPECT_DEATH(NIBBLE_CHECK(1 == 2, "left {} right {}", 1, 2), "left 1 right 2");
}

}  // namespace
}  // namespace nibble
