// A progress line on stderr: redrawn in place on a terminal, plain lines elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <string>

namespace nibble::cli {

// One thread. Says nothing about work that is over within a moment.
class Progress {
 public:
  explicit Progress(std::string what);
  ~Progress();  // clears the line on a terminal

  void show(double fraction);  // 0..1

 private:
  std::string what_;
  bool terminal_;
  bool drawn_ = false;
  int last_percent_ = -1;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

// The same for bytes that arrive: how many of how many, how fast, how long still.
class TransferProgress {
 public:
  explicit TransferProgress(std::string what);
  ~TransferProgress();  // clears the line on a terminal

  // A few times a second. What was there at the first call does not count for the rate. Elsewhere than on a terminal a line
  // comes every 10 s.
  void show(std::int64_t done_bytes, std::int64_t total_bytes);
  void clear();  // before something else is printed; on a terminal the next show() draws again

 private:
  using Clock = std::chrono::steady_clock;
  struct Sample {
    Clock::time_point time;
    std::int64_t bytes;
  };
  double rate_bytes_per_s(Sample now);

  std::string what_;
  bool terminal_;
  bool drawn_ = false;
  std::deque<Sample> samples_;  // of the last seconds
  Clock::time_point last_line_;
};

}  // namespace nibble::cli
