// Independent jobs on a few threads, where any of them may fail.
#pragma once

#include <cstddef>
#include <functional>

namespace nibble::convert {

// Calls job(i) for each i below `count`, in about that order, on `threads` (>= 1) threads; returns when
// all are done. Meanwhile the calling thread calls `poll` about twenty times a second. When a job or
// `poll` throws, no further job begins, and the exception of the lowest job is thrown on (a job's before
// poll's).
void run_jobs(std::size_t count, int threads, const std::function<void(std::size_t)>& job,
              const std::function<void()>& poll);

}  // namespace nibble::convert
