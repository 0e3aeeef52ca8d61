#include "ops/cpu/cpu_backend.h"

#include <fmt/format.h>

namespace nibble::ops::cpu {

CpuBackend::CpuBackend(Numerics numerics, ThreadPool& pool) : RefBackend(numerics), pool_(pool) {}

std::string CpuBackend::description() const {
  return fmt::format("cpu ({} threads)", pool_.size());
}

KernelInfo CpuBackend::kernel(OpKind op, quant::Format format) const {
  return RefBackend::kernel(op, format);
}

}  // namespace nibble::ops::cpu
