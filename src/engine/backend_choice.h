// Which backend runs a model, and with what rounding.
#pragma once

#include <memory>

#include "base/thread_pool.h"
#include "model/config.h"
#include "nibble/engine.h"
#include "ops/backend.h"

namespace nibble::engine {

// kAuto becomes kCuda where this binary holds the CUDA backend and the machine has a GPU, else kCpu; the rest stays. Throws Error
// when the machine has an NVIDIA GPU that this binary cannot use: running on the CPU instead must be asked for.
DeviceKind resolve_device(DeviceKind asked);

// `device` is resolved.
ops::Numerics numerics_for(const EngineOptions& options, DeviceKind device,
                           const model::ModelConfig& config);

// `threads` must outlive the backend. Throws Error: the binary was built without CUDA, no GPU, an old driver.
// graphs: EngineOptions::graphs.
std::unique_ptr<ops::Backend> make_backend(DeviceKind device, ops::Numerics numerics,
                                           ThreadPool& threads, bool graphs);

}  // namespace nibble::engine
