// Log lines go to stderr: stdout belongs to answers (`nibble run`) and to tables a person pipes.
#pragma once

#include <spdlog/spdlog.h>

namespace nibble {

// Call once at start. level: "debug", "info", "warn", "error". Throws Error(kUsage) for another
// word.
void init_log(const std::string& level);

}  // namespace nibble
