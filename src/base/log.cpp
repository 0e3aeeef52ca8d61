#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>

#include "nibble/status.h"

namespace nibble {

void init_log(const std::string& level) {
  const spdlog::level::level_enum parsed = spdlog::level::from_str(level);
  if (parsed == spdlog::level::off && level != "off")
    throw Error(ExitCode::kUsage,
                "unknown log level '" + level + "' (debug, info, warn, error, off)");
  auto logger = spdlog::stderr_color_mt("nibble");
  logger->set_pattern("%H:%M:%S.%e %^%l%$ %v");
  logger->set_level(parsed);
  spdlog::set_default_logger(logger);
}

}  // namespace nibble
