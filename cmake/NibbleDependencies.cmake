# Everything comes from the distribution's packages (packaging/packages.*.txt).
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(simdjson REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
find_package(CLI11 REQUIRED)
find_package(Boost 1.81 REQUIRED)  # headers only: Asio and Beast

# By hand: the packaged CMake file insists on curl, civetweb and zlib, for parts of the library not used here.
find_path(NIBBLE_PROMETHEUS_INCLUDE prometheus/registry.h REQUIRED)
find_library(NIBBLE_PROMETHEUS_CORE prometheus-cpp-core REQUIRED)
add_library(prometheus-cpp::core UNKNOWN IMPORTED GLOBAL)
set_target_properties(prometheus-cpp::core PROPERTIES
  IMPORTED_LOCATION ${NIBBLE_PROMETHEUS_CORE}
  INTERFACE_INCLUDE_DIRECTORIES ${NIBBLE_PROMETHEUS_INCLUDE})

# Headers only: the library is opened at run time (src/hub/curl_library.h).
find_path(NIBBLE_CURL_INCLUDE curl/curl.h REQUIRED)
add_library(CURL::headers INTERFACE IMPORTED GLOBAL)
target_include_directories(CURL::headers INTERFACE ${NIBBLE_CURL_INCLUDE})

# From here on NIBBLE_TESTS is a plain yes or no.
if(NIBBLE_TESTS STREQUAL AUTO)
  find_package(GTest QUIET)
  set(NIBBLE_TESTS ${GTest_FOUND})
elseif(NIBBLE_TESTS)
  find_package(GTest REQUIRED)
endif()
