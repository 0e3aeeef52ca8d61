// Threads for work that grows with a request's size, so that the io thread never waits for it.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

namespace nibble::api {

// Jobs run in the order they came, on any of the threads. Jobs must not throw.
class Workers {
 public:
  explicit Workers(int threads);
  ~Workers();  // finishes the jobs being run, drops the others

  void run(std::function<void()> job);  // any thread

 private:
  void work(std::stop_token stop);

  std::mutex mutex_;
  std::condition_variable_any ready_;
  std::deque<std::function<void()>> jobs_;  // under mutex_
  std::vector<std::jthread> threads_;
};

}  // namespace nibble::api
