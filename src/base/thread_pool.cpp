#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>

#include "base/check.h"

namespace nibble {
namespace {

// A step's loops follow each other within microseconds: spin that long before sleeping in the
// kernel.
constexpr int kSpins = 2000;
constexpr std::uint64_t kOpen = std::uint64_t{1} << 31;
constexpr std::uint64_t kInside = kOpen - 1;

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

// Only while the job is open: whoever comes late (its CPU was busy with something else) is not waited for.
bool ThreadPool::enter(std::uint32_t generation) {
  std::uint64_t door = door_.load(std::memory_order_acquire);
  while (door >> 32 == generation && (door & kOpen))
    if (door_.compare_exchange_weak(door, door + 1, std::memory_order_acq_rel)) return true;
  return false;
}

void ThreadPool::work(std::stop_token stop) {
  std::uint32_t seen = 0;
  for (;;) {
    for (int spin = 0; spin < kSpins && generation_.load(std::memory_order_acquire) == seen; ++spin)
      cpu_relax();
    generation_.wait(seen, std::memory_order_acquire);
    seen = generation_.load(std::memory_order_acquire);
    if (stop.stop_requested()) return;
    if (!enter(seen)) continue;
    drain();
    door_.fetch_sub(1, std::memory_order_acq_rel);
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
  // Nobody is inside, and the door is closed.
  job_ = Job{&body, count, grain};
  next_.store(0, std::memory_order_relaxed);
  const std::uint32_t generation = generation_.load(std::memory_order_relaxed) + 1;
  door_.store(std::uint64_t{generation} << 32 | kOpen, std::memory_order_release);
  generation_.store(generation, std::memory_order_release);
  generation_.notify_all();
  drain();
  door_.fetch_and(~kOpen, std::memory_order_acq_rel);
  for (int spin = 0; (door_.load(std::memory_order_acquire) & kInside) != 0; ++spin) {
    if (spin < kSpins)
      cpu_relax();
    else
      std::this_thread::yield();
  }
}

}  // namespace nibble
