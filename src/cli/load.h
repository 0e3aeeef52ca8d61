// Loading a model folder with everything a chat needs, and saying what was loaded.
#pragma once

#include <functional>
#include <memory>

#include "api/served_model.h"
#include "cli/options.h"

namespace nibble::cli {

// `progress` may be null; it is called on the calling thread with a fraction in [0, 1]. Throws Error.
std::unique_ptr<api::ServedModel> load_served_model(const ModelOptions& options,
                                                    const std::function<void(double)>& progress);

// The start-up table (layer kind, format, count, bytes, kernel, unit) and the model's notes, to the log.
void log_model(const api::ServedModel& model);

}  // namespace nibble::cli
