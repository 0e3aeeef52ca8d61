#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace nibble::cli {
namespace {

constexpr std::chrono::milliseconds kMoment{700};
constexpr int kBarWidth = 30;
constexpr int kPlainStep_percent = 10;

}  // namespace

Progress::Progress(std::string what)
    : what_(std::move(what)), terminal_(isatty(STDERR_FILENO) != 0) {}

Progress::~Progress() {
  if (drawn_ && terminal_) fmt::print(stderr, "\r\033[K");
}

void Progress::show(double fraction) {
  const int percent = static_cast<int>(std::clamp(fraction, 0.0, 1.0) * 100.0);
  const int step = terminal_ ? 1 : kPlainStep_percent;
  if (percent == 100 && !drawn_) return;
  if (percent / step == last_percent_ / step && last_percent_ >= 0) return;
  if (std::chrono::steady_clock::now() - begin_ < kMoment) return;
  last_percent_ = percent;
  drawn_ = true;
  if (!terminal_) {
    fmt::print(stderr, "{}: {} %\n", what_, percent);
    return;
  }
  const int filled = percent * kBarWidth / 100;
  fmt::print(stderr, "\r{} [{:#<{}}{:.<{}}] {:3} %", what_, "", filled, "", kBarWidth - filled,
             percent);
  std::fflush(stderr);
}

}  // namespace nibble::cli
