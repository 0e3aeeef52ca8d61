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
constexpr std::chrono::seconds kPlainStep{10};
constexpr std::chrono::seconds kRateWindow{
    15};  // long enough to be calm, short enough to follow the line

std::string bar(double fraction) {
  const int filled =
      static_cast<int>(std::clamp(fraction, 0.0, 1.0) * static_cast<double>(kBarWidth));
  return fmt::format("[{:#<{}}{:.<{}}]", "", filled, "", kBarWidth - filled);
}

// "4 s", "3 min 20 s", "2 h 5 min".
std::string duration_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::min(seconds, 8.64e6));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole / 60 % 60);
}

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
  fmt::print(stderr, "\r{} {} {:3} %", what_, bar(percent / 100.0), percent);
  std::fflush(stderr);
}

TransferProgress::TransferProgress(std::string what)
    : what_(std::move(what)), terminal_(isatty(STDERR_FILENO) != 0) {}

TransferProgress::~TransferProgress() {
  clear();
}

void TransferProgress::clear() {
  if (drawn_ && terminal_) fmt::print(stderr, "\r\033[K");
  drawn_ = false;
}

double TransferProgress::rate_bytes_per_s(Sample now) {
  while (samples_.size() > 1 && now.time - samples_.front().time > kRateWindow)
    samples_.pop_front();
  // Less than before: something was started over.
  while (!samples_.empty() && samples_.back().bytes > now.bytes) samples_.pop_back();
  samples_.push_back(now);
  const std::chrono::duration<double> seconds = now.time - samples_.front().time;
  const auto bytes = static_cast<double>(now.bytes - samples_.front().bytes);
  return seconds.count() > 0.0 ? bytes / seconds.count() : 0.0;
}

void TransferProgress::show(std::int64_t done_bytes, std::int64_t total_bytes) {
  const Clock::time_point now = Clock::now();
  const bool first = samples_.empty();
  if (first) last_line_ = now;
  const double rate = rate_bytes_per_s({now, done_bytes});
  if (!terminal_ && now - last_line_ < kPlainStep) return;
  last_line_ = now;
  const double fraction =
      total_bytes > 0 ? static_cast<double>(done_bytes) / static_cast<double>(total_bytes) : 1.0;
  std::string text = fmt::format("{:.2f} of {:.2f} GB", static_cast<double>(done_bytes) / 1e9,
                                 static_cast<double>(total_bytes) / 1e9);
  if (total_bytes < 100'000'000)
    text = fmt::format("{:.2f} of {:.2f} MB", static_cast<double>(done_bytes) / 1e6,
                       static_cast<double>(total_bytes) / 1e6);
  text += fmt::format(", {:.1f} MB/s", rate / 1e6);
  if (rate > 0.0 && done_bytes < total_bytes)
    text += ", " + duration_text(static_cast<double>(total_bytes - done_bytes) / rate) + " left";
  const int percent = static_cast<int>(fraction * 100.0);
  if (terminal_)
    fmt::print(stderr, "\r\033[K{} {} {:3} %, {}", what_, bar(fraction), percent, text);
  else
    fmt::print(stderr, "{}: {} %, {}\n", what_, percent, text);
  std::fflush(stderr);
  drawn_ = true;
}

}  // namespace nibble::cli
