# Compiler settings shared by every target.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
# No NDEBUG: assertions of the libraries stay on, as NIBBLE_CHECK does.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g1")

# One cache serves every clone and build folder: paths below the source folder are made relative before hashing.
find_program(NIBBLE_CCACHE ccache)
if(NIBBLE_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER
    ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${NIBBLE_CCACHE})
endif()
find_program(NIBBLE_MOLD mold)
if(NIBBLE_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

add_library(nibble_flags INTERFACE)
# Every backend promises the same bits for the same op and shape: no contraction behind our back.
target_compile_options(nibble_flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wshadow;-ffp-contract=off>")
if(NIBBLE_WERROR)
  target_compile_options(nibble_flags INTERFACE $<IF:$<COMPILE_LANGUAGE:CUDA>,-Werror=all-warnings,-Werror>)
endif()

# Sanitizers are directory options, not nibble_flags: one object without them hides what it does.
if(NIBBLE_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "NIBBLE_FUZZ needs clang++, found ${CMAKE_CXX_COMPILER_ID}: use the preset `fuzz`")
  endif()
  # fuzzer-no-link everywhere: without it libFuzzer sees nothing of the libraries under test.
  set(sanitizers -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all)
elseif(NIBBLE_SANITIZE STREQUAL "address")
  set(sanitizers -fsanitize=address,undefined -fno-sanitize-recover=all)
elseif(NIBBLE_SANITIZE STREQUAL "thread")
  set(sanitizers -fsanitize=thread)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Asio uses a fence that g++'s TSan does not model; it says so for every file that includes it.
    list(APPEND sanitizers -Wno-tsan)
  endif()
elseif(NOT NIBBLE_SANITIZE STREQUAL "")
  message(FATAL_ERROR "NIBBLE_SANITIZE is `${NIBBLE_SANITIZE}`; expected `address`, `thread` or nothing")
endif()
if(sanitizers)
  set(CMAKE_CXX_FLAGS_RELEASE "-O1 -g1")
  # Optimising instrumented code is most of the build's time (27 s against 12 s for a file of the server), and only
  # what computes gains from it: the rest, and the tests, are built without. See nibble_cold().
  set(NIBBLE_COLD_MODULES api checkpoint hub sched)
  add_compile_options(${sanitizers} -fno-omit-frame-pointer)
  add_link_options(${sanitizers})
endif()
