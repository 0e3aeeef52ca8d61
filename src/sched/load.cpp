// The whole engine from a folder: a model, and the scheduler that drives it.
#include "engine/model_runner.h"
#include "sched/scheduler.h"

namespace nibble {

std::unique_ptr<Engine> Engine::load(const EngineOptions& options,
                                     const std::function<void(double)>& progress) {
  return std::make_unique<sched::Scheduler>(
      engine::ModelRunner::load(options, options.max_num_seqs, progress), options);
}

}  // namespace nibble
