#include "engine/backend_choice.h"

#include <filesystem>

#include "nibble/status.h"
#include "ops/cpu/cpu_backend.h"
#include "ops/ref/ref_backend.h"
#ifdef NIBBLE_CUDA
#include "ops/cuda/cuda_backend.h"
#endif

namespace nibble::engine {

DeviceKind resolve_device(DeviceKind asked) {
  if (asked != DeviceKind::kAuto) return asked;
#ifdef NIBBLE_CUDA
  if (ops::cuda::device_count() > 0) return DeviceKind::kCuda;
#endif
  std::error_code ignored;
  if (!std::filesystem::exists("/dev/nvidia0", ignored)) return DeviceKind::kCpu;
#ifdef NIBBLE_CUDA
  return DeviceKind::kCuda;  // whose constructor says why it cannot be used
#else
  throw Error(ExitCode::kFailed,
              "this machine has an NVIDIA GPU, but this binary was built without CUDA (preset "
              "`cuda`); --device cpu runs "
              "on the processor instead");
#endif
}

ops::Numerics numerics_for(const EngineOptions& options, DeviceKind device,
                           const model::ModelConfig& config) {
  ops::Numerics numerics;
  numerics.release = options.activations == Activations::kRelease ||
                     (options.activations == Activations::kAuto &&
                      (device == DeviceKind::kCuda || config.has_activation_scheme));
  KvDtype kv = options.kv_dtype;
  if (kv == KvDtype::kAuto) kv = numerics.release ? KvDtype::kFp8 : KvDtype::kFp32;
  switch (kv) {
    case KvDtype::kAuto:
    case KvDtype::kFp32:
      numerics.kv_rows = numerics.index_rows = ops::RowFormat::kF32;
      break;
    case KvDtype::kBf16:
      numerics.kv_rows = numerics.index_rows = ops::RowFormat::kBf16;
      break;
    case KvDtype::kFp8:
      numerics.kv_rows = ops::RowFormat::kFp8Nope;
      numerics.index_rows = ops::RowFormat::kFp4Index;
      break;
  }
  return numerics;
}

std::unique_ptr<ops::Backend> make_backend(DeviceKind device, ops::Numerics numerics,
                                           ThreadPool& threads, [[maybe_unused]] bool graphs) {
  switch (device) {
    case DeviceKind::kRef:
      return std::make_unique<ops::ref::RefBackend>(numerics);
    case DeviceKind::kCuda:
#ifdef NIBBLE_CUDA
      return std::make_unique<ops::cuda::CudaBackend>(numerics, 0, graphs);
#else
      throw Error(ExitCode::kUsage,
                  "--device cuda: this binary was built without CUDA (preset `cuda`)");
#endif
    case DeviceKind::kAuto:
    case DeviceKind::kCpu:
      break;
  }
  return std::make_unique<ops::cpu::CpuBackend>(numerics, threads);
}

}  // namespace nibble::engine
