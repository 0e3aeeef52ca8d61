#include "machine_ceilings.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "tensor/buffer.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace nibble::bench {
namespace {

constexpr int kRuns = 60;
constexpr std::int64_t kChunkBytes = 64 << 10;
constexpr std::int64_t kMultiplyAdds = 1 << 11;  // of 8 lanes x 10 chains, a piece

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// A ceiling is the best of the runs: whatever else ran on the machine only takes away from it.
template <typename Work>
double best_seconds(const Work& work) {
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kRuns; ++i) {
    const double start = seconds_now();
    work();
    best = std::min(best, seconds_now() - start);
  }
  return best;
}

// Results that somebody might look at: the loops are not optimised away.
volatile std::uint64_t read_sink;
volatile float flop_sink;

#if defined(__x86_64__)
__attribute__((target("avx2"))) std::uint64_t read_avx2(const std::byte* p, std::int64_t bytes) {
  __m256i s[4] = {};
  for (std::int64_t i = 0; i < bytes; i += 128)
    for (int j = 0; j < 4; ++j)
      s[j] = _mm256_xor_si256(s[j],
                              _mm256_load_si256(reinterpret_cast<const __m256i*>(p + i + 32L * j)));
  const __m256i all = _mm256_xor_si256(_mm256_xor_si256(s[0], s[1]), _mm256_xor_si256(s[2], s[3]));
  return static_cast<std::uint64_t>(_mm256_extract_epi64(all, 0));
}

__attribute__((target("avx2,fma"))) float multiply_add_avx2(std::int64_t count) {
  __m256 a[10];
  for (__m256& x : a) x = _mm256_set1_ps(0.5f);
  const __m256 half = _mm256_set1_ps(0.5f);
  for (std::int64_t i = 0; i < count; ++i)
#pragma GCC unroll 10
    for (int j = 0; j < 10; ++j) a[j] = _mm256_fmadd_ps(a[j], half, half);
  __m256 sum = a[0];
  for (int j = 1; j < 10; ++j) sum = _mm256_add_ps(sum, a[j]);
  return _mm256_cvtss_f32(sum);
}
#endif

std::uint64_t read_portable(const std::byte* p, std::int64_t bytes) {
  const auto* words = reinterpret_cast<const std::uint64_t*>(p);
  std::uint64_t s[4] = {};
  for (std::int64_t i = 0; i < bytes / 8; i += 4)
    for (int j = 0; j < 4; ++j) s[j] ^= words[i + j];
  return s[0] ^ s[1] ^ s[2] ^ s[3];
}

float multiply_add_portable(std::int64_t count) {
  float a[80];
  std::fill(a, a + 80, 0.5f);
  for (std::int64_t i = 0; i < count; ++i)
    for (float& x : a) x = x * 0.5f + 0.5f;
  return a[0];
}

bool has_avx2() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
  return false;
#endif
}

std::uint64_t read_bytes(const std::byte* p, std::int64_t bytes) {
#if defined(__x86_64__)
  if (has_avx2()) return read_avx2(p, bytes);
#endif
  return read_portable(p, bytes);
}

float multiply_add(std::int64_t count) {
#if defined(__x86_64__)
  if (has_avx2()) return multiply_add_avx2(count);
#endif
  return multiply_add_portable(count);
}

}  // namespace

Ceilings measure_ceilings(ThreadPool& pool, std::int64_t buffer_bytes) {
  const std::int64_t chunks = std::max<std::int64_t>(pool.size(), buffer_bytes / kChunkBytes);
  const tensor::HostBuffer<std::byte> buffer(chunks * kChunkBytes);
  Ceilings out;
  const int passes = static_cast<int>(std::max<std::int64_t>(1, (64 << 20) / buffer.bytes()));
  const double read_s = best_seconds([&] {
    for (int pass = 0; pass < passes; ++pass)
      pool.run(chunks, std::max<std::int64_t>(1, chunks / (8L * pool.size())),
               [&](std::int64_t begin, std::int64_t end) {
                 read_sink =
                     read_bytes(buffer.data() + begin * kChunkBytes, (end - begin) * kChunkBytes);
               });
  });
  out.read_bytes_per_s = static_cast<double>(passes * buffer.bytes()) / read_s;
  const std::int64_t pieces = 32L * pool.size();
  const double flop_s = best_seconds([&] {
    pool.run(pieces, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) flop_sink = multiply_add(kMultiplyAdds);
    });
  });
  out.flops = 2.0 * 80.0 * static_cast<double>(kMultiplyAdds * pieces) / flop_s;
  return out;
}

}  // namespace nibble::bench
