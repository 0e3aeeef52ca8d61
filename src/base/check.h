// NIBBLE_CHECK(condition, "format", values...): a broken invariant prints its values and stops the
// process.
#pragma once

#include <fmt/format.h>

#include <string>

namespace nibble {

[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               const std::string& values);

}  // namespace nibble

#define NIBBLE_CHECK(condition, ...)                                                      \
  do {                                                                                    \
    if (!(condition)) [[unlikely]]                                                        \
      ::nibble::check_failed(__FILE__, __LINE__, #condition, ::fmt::format(__VA_ARGS__)); \
  } while (false)
