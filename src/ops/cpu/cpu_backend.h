// The host backend: SIMD where the processor has it, a team of threads for the loops of a step.
#pragma once

#include "base/thread_pool.h"
#include "ops/ref/ref_backend.h"

namespace nibble::ops::cpu {

// Every op that it does not override is the reference's loop, and kernel() says so.
class CpuBackend : public ref::RefBackend {
 public:
  // The pool outlives the backend; nothing else uses it during an op.
  CpuBackend(Numerics numerics, ThreadPool& pool);

  std::string description() const override;
  KernelInfo kernel(OpKind op, quant::Format format) const override;

 private:
  ThreadPool& pool_;
};

}  // namespace nibble::ops::cpu
