#include "hub/retry.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

namespace nibble::hub {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFirstWait{500};
constexpr milliseconds kLongestWait{30'000};
constexpr int kLongestRetryAfter_s = 300;
constexpr milliseconds kLook{50};  // how often a wait asks whether it is cancelled

}  // namespace

bool worth_retrying(const GetResult& result) {
  if (result.outcome == GetOutcome::kBroken) return true;
  const int status = result.head.status;
  return result.outcome != GetOutcome::kCancelled && result.outcome != GetOutcome::kRefused &&
         (status == 408 || status == 429 || status == 500 || status == 502 || status == 503 ||
          status == 504);
}

std::string describe(const GetResult& result) {
  switch (result.outcome) {
    case GetOutcome::kBroken:
      return fmt::format("the connection failed ({})", result.problem);
    case GetOutcome::kRefused:
      return result.problem;
    case GetOutcome::kCancelled:
      return "interrupted";
    case GetOutcome::kTooLong:
      return "sent more bytes than it may";
    default:
      return result.retry_after_s > 0 ? fmt::format("answered {} (try again after {} s)",
                                                    result.head.status, result.retry_after_s)
                                      : fmt::format("answered {}", result.head.status);
  }
}

bool Backoff::wait(const GetResult& failure) {
  if (failures_ == retries_ || failure.retry_after_s > kLongestRetryAfter_s) return false;
  const milliseconds own = std::min(kLongestWait, kFirstWait * (1 << std::min(failures_, 8)));
  const milliseconds pause =
      std::max(own, milliseconds(std::chrono::seconds(failure.retry_after_s)));
  ++failures_;
  const auto end = std::chrono::steady_clock::now() + pause;
  while (std::chrono::steady_clock::now() < end) {
    if (client_.cancelled()) return false;
    std::this_thread::sleep_for(kLook);
  }
  return !client_.cancelled();
}

}  // namespace nibble::hub
