// A fixed team of threads for the loops of one step.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

namespace nibble {

// Number of CPUs this process may run on (affinity mask, then the hardware count); at least 1.
int available_cpus();

// Owned and driven by one thread; run() is not reentrant. The calling thread is member 0 of the
// team.
class ThreadPool {
 public:
  explicit ThreadPool(int threads);  // >= 1
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(begin, end) on disjoint pieces that cover [0, count); returns when all are done.
  // Pieces are handed out by a shared counter in multiples of `grain` (>= 1), so which thread runs
  // a piece varies; the body's result must not depend on it. An exception in a piece ends the
  // process (bodies do arithmetic).
  void run(std::int64_t count, std::int64_t grain,
           const std::function<void(std::int64_t begin, std::int64_t end)>& body);

 private:
  void work(std::stop_token stop);
  bool enter(std::uint32_t generation);
  void drain();

  struct alignas(64) Job {
    const std::function<void(std::int64_t, std::int64_t)>* body = nullptr;
    std::int64_t count = 0;
    std::int64_t grain = 1;
  };
  Job job_;
  alignas(64) std::atomic<std::int64_t> next_{0};
  alignas(64) std::atomic<std::uint32_t> generation_{0};  // of the job; what idle workers wait on
  // The job's door: generation << 32, kOpen while workers may enter, and the number inside.
  alignas(64) std::atomic<std::uint64_t> door_{0};
  std::vector<std::jthread> workers_;
};

}  // namespace nibble
