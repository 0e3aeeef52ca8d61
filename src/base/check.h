// NIBBLE_CHECK(condition, "format", values...): a broken invariant prints its values and stops the
// process.
#pragma once

#ifndef __CUDACC__
#include <fmt/format.h>
#endif

#include <string>

namespace nibble {

[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               const std::string& values);

}  // namespace nibble

#ifdef __CUDACC__
// nvcc cannot read fmt. Host code in a .cu file that fails here prints no values.
#define NIBBLE_CHECK(condition, ...)                                              \
  do {                                                                            \
    if (!(condition)) ::nibble::check_failed(__FILE__, __LINE__, #condition, ""); \
  } while (false)
#else
#define NIBBLE_CHECK(condition, ...)                                                      \
  do {                                                                                    \
    if (!(condition)) [[unlikely]]                                                        \
      ::nibble::check_failed(__FILE__, __LINE__, #condition, ::fmt::format(__VA_ARGS__)); \
  } while (false)
#endif
