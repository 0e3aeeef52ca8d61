// Random numbers that are the same on every machine: the standard library's distributions are not.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

namespace nibble::bench {

// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  // A stream of its own for each purpose, so that one more number here changes nothing there.
  Random(std::uint64_t seed, std::uint64_t stream) : state_(Random(seed).next() ^ stream) {
    state_ = next();
  }

  std::uint64_t next() {
    state_ += 0x9e3779b97f4a7c15u;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }         // [0, 1)
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(next() % n); }  // n > 0
  int between(int low, int high) {  // both inclusive, low <= high
    return low + static_cast<int>(below(static_cast<std::size_t>(high - low) + 1));
  }
  double exponential(double mean) { return -mean * std::log1p(-uniform()); }

 private:
  std::uint64_t state_;
};

}  // namespace nibble::bench
