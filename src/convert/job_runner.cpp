#include "convert/job_runner.h"

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace nibble::convert {

void run_jobs(std::size_t count, int threads, const std::function<void(std::size_t)>& job,
              const std::function<void()>& poll) {
  std::mutex mutex;  // for everything below
  std::condition_variable changed;
  std::size_t next = 0, failed_job = count;
  std::exception_ptr failure;
  int working = threads;

  const auto work = [&] {
    std::unique_lock lock(mutex);
    while (next < count && !failure) {
      const std::size_t i = next++;
      lock.unlock();
      std::exception_ptr error;
      try {
        job(i);
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      if (error && (!failure || i < failed_job)) {
        failure = error;
        failed_job = i;
      }
    }
    if (--working == 0) changed.notify_one();
  };

  std::exception_ptr poll_failure;
  {
    std::vector<std::jthread> team;
    team.reserve(static_cast<std::size_t>(threads));
    for (int i = 0; i < threads; ++i) team.emplace_back(work);
    std::unique_lock lock(mutex);
    while (working > 0) {
      changed.wait_for(lock, std::chrono::milliseconds(50));
      if (poll_failure) continue;
      lock.unlock();
      try {
        poll();
      } catch (...) {
        poll_failure = std::current_exception();
      }
      lock.lock();
      if (poll_failure) next = count;
    }
  }
  if (failure) std::rethrow_exception(failure);
  if (poll_failure) std::rethrow_exception(poll_failure);
}

}  // namespace nibble::convert
