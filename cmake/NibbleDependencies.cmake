# Everything comes from the distribution's packages (packaging/packages.*.txt).
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(simdjson REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
find_package(CLI11 REQUIRED)
find_package(prometheus-cpp REQUIRED COMPONENTS core)
find_package(Boost 1.81 REQUIRED)  # headers only: Asio and Beast
if(NIBBLE_TESTS)
  find_package(GTest REQUIRED)
  include(GoogleTest)
endif()
