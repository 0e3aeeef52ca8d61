#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>

#include "base/check.h"

namespace nibble {
namespace {

// A step's loops follow each other within microseconds: spin that long before sleeping in the
// kernel.
constexpr int kSpins = 2000;

inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

int available_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1u, std::thread::hardware_concurrency());
}

ThreadPool::ThreadPool(int threads) {
  NIBBLE_CHECK(threads >= 1, "threads {}", threads);
  for (int i = 1; i < threads; ++i)
    workers_.emplace_back([this](std::stop_token stop) { work(stop); });
}

ThreadPool::~ThreadPool() {
  for (auto& worker : workers_) worker.request_stop();
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
}

void ThreadPool::drain() {
  for (;;) {
    const std::int64_t begin = next_.fetch_add(job_.grain, std::memory_order_relaxed);
    if (begin >= job_.count) return;
    (*job_.body)(begin, std::min(begin + job_.grain, job_.count));
  }
}

void ThreadPool::work(std::stop_token stop) {
  std::uint32_t seen = 0;
  for (;;) {
    for (int spin = 0; spin < kSpins && generation_.load(std::memory_order_acquire) == seen; ++spin)
      cpu_relax();
    generation_.wait(seen, std::memory_order_acquire);
    // Every generation is waited for by all members, so a worker never misses one.
    seen = generation_.load(std::memory_order_acquire);
    if (stop.stop_requested()) return;
    drain();
    busy_.fetch_sub(1, std::memory_order_acq_rel);
  }
}

void ThreadPool::run(std::int64_t count, std::int64_t grain,
                     const std::function<void(std::int64_t, std::int64_t)>& body) {
  NIBBLE_CHECK(grain >= 1, "grain {}", grain);
  if (count <= 0) return;
  if (workers_.empty() || count <= grain) {
    body(0, count);
    return;
  }
  job_ = Job{&body, count, grain};
  next_.store(0, std::memory_order_relaxed);
  busy_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  drain();
  for (int spin = 0; busy_.load(std::memory_order_acquire) != 0; ++spin) {
    if (spin < kSpins)
      cpu_relax();
    else
      std::this_thread::yield();
  }
}

}  // namespace nibble
