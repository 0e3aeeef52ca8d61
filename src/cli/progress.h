// A progress line on stderr: redrawn in place on a terminal, plain lines elsewhere.
#pragma once

#include <chrono>
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

}  // namespace nibble::cli
